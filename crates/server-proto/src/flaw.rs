//! Deliberate faults, one line each, with which the simulator is tested. Without the feature
//! `flaws` there are none.

farcall_directory::flaws! {
    /// A call gets memory with bytes of another user's call.
    SharesBuffers,
    /// A worker runs calls of several users.
    SharesWorkers,
    /// A call whose worker died after it had begun is begun again.
    RunsAgain,
    /// A durable call is acknowledged before the journal has recorded it.
    AcknowledgesEarly,
    /// A durable call starts before the journal has recorded that it runs.
    StartsEarly,
    /// Processor elements of a running call are given to others.
    BooksTwice,
    /// A call may write an array while others use it.
    MixesWriters,
    /// Memory of calls that were given up is not freed.
    LeaksMemory,
    /// Requests that wait for memory are not told when there is some.
    ForgetsStarved,
    /// Results are removed at the end of the call.
    RemovesResults,
    /// Other users find a persistent object.
    SharesObjects,
    /// A persistent object ends with a connection that uses it.
    EndsKeptObjects,
    /// Any worker runs a method, not only the worker of its object.
    StraysMethods,
    /// Other users find data that are not shared.
    ShowsPrivateNames,
    /// A name still refers to a version that was replaced.
    KeepsOldVersions,
    /// A call may write named data.
    WritesNamed,
    /// A user may release another user's reservation.
    ReleasesOthers,
    /// A reservation is forgotten when the next one is made.
    DropsBookings,
    /// Bytes that pass at a reserved rate are not counted.
    OverspendsLanes,
    /// A client has unlimited time to answer a callback.
    AwaitsForever,
    /// Memory that a client gives back is freed while a call still uses it.
    FreesSegments,
    /// Any user may register libraries.
    RegistersAnyone,
    /// A server that takes over refuses requests about durable calls meanwhile.
    RefusesAtTakeover,
    /// A draining server closes connections without a goodbye.
    ForgetsGoodbye,
    /// A call may wait for processor elements for ever.
    ForgetsPatience,
    /// Only one of the two logs is read.
    ReadsOneLog,
    /// Results expire by the calendar, which may jump.
    ExpiresByCalendar,
    /// A slow client may hold memory for which others wait.
    AwaitsSlowClients,
    /// Workers with the old files of a library go on after the files were replaced.
    KeepsOldFiles,
    /// A source that was read is not asked whether it has changed.
    KeepsOldSources,
    /// An array may change or go while a connector writes it to an address.
    ReleasesWritten,
    /// A call fails at once if there is no memory for one of its arrays.
    AwaitsNoMemory,
    /// Calls that wait for each other's arrays keep those that they have in memory.
    KeepsWaiting,
    /// Calls take the memory for the arrays that calls with data of their own wait for.
    TakesTooMany,
    /// Durable calls are forgotten before their retention is over.
    ForgetsEarly,
    /// The journal is not told of a durable call that is forgotten.
    KeepsForgotten,
    /// An array may leave memory while a part of it arrives.
    ForgetsParts,
}
