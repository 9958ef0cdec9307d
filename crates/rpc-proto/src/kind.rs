//! Kinds of frames: their numbers on the wire, and the subject of each. The subject decides which
//! module handles a frame. A number never gets another meaning.

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Kind {
    /// Greeting: versions, features, who is speaking.
    Hello = 1,
    /// Asks for the functions served.
    List = 2,
    /// Answers [`Kind::List`].
    Listing = 3,
    /// Asks for the interface of a function.
    Describe = 4,
    /// Answers [`Kind::Describe`].
    Interface = 5,
    /// Opens a call: function, scalars, length of the data stream that follows.
    Call = 6,
    /// Part of a call's data stream.
    Data = 7,
    /// The call has been computed; its result stream follows.
    Result = 8,
    /// The result stream is complete; how long each part took.
    Done = 9,
    /// The request failed.
    Failure = 10,
    /// The client no longer wants the call.
    Cancel = 11,
    /// The connection ends, and why.
    Goodbye = 12,
    /// Asks for memory that both sides share.
    Share = 13,
    /// Answers [`Kind::Share`]. The memory itself is passed beside the bytes.
    Shared = 14,
    /// The client no longer wants the memory.
    Unshare = 15,
    /// The running function calls a function of the client.
    Callback = 16,
    /// Answers [`Kind::Callback`].
    Answer = 17,
    /// What the running function has printed.
    Output = 18,
    /// Fills a part of a stored array. Its data stream follows.
    PutPart = 19,
    /// Asks for a part of a stored array. The answer is like that of a call.
    GetPart = 20,
    /// The server has room for the data stream of a request.
    Grant = 21,
    /// Makes an object persistent.
    KeepObject = 22,
    /// Makes a persistent object known on this connection.
    AttachObject = 23,
    /// Asks for the estimate of a call.
    Estimate = 24,
    /// Answers [`Kind::Estimate`].
    Estimated = 25,
    /// Asks for an object of a class.
    New = 26,
    /// Answers [`Kind::New`].
    Created = 27,
    /// The client no longer wants the object.
    Delete = 28,
    /// Destroys a persistent object.
    DropObject = 29,
    /// Asks for the persistent objects.
    ListObjects = 30,
    /// Answers [`Kind::KeepObject`], [`Kind::AttachObject`], [`Kind::DropObject`] and
    /// [`Kind::ListObjects`].
    Objects = 31,
    /// Submits a durable call. Its data stream follows.
    Submit = 32,
    /// Answers [`Kind::Submit`]: the call is recorded and will run.
    Submitted = 33,
    /// Asks about a durable call.
    AskJob = 34,
    /// Answers [`Kind::AskJob`] and [`Kind::CancelJob`].
    Job = 35,
    /// Asks for the results of a durable call. The answer is like that of a call, after the durable
    /// call has ended.
    Fetch = 36,
    /// Cancels a durable call.
    CancelJob = 37,
    /// Asks for a page of durable calls.
    ListJobs = 38,
    /// Answers [`Kind::ListJobs`].
    Jobs = 39,
    /// Stores an array. Its data stream follows.
    Put = 40,
    /// Asks for a stored array. The answer is like that of a call.
    Get = 41,
    /// Asks about a stored array.
    AskHandle = 42,
    /// Drops a stored array.
    Drop = 43,
    /// Asks for a page of stored arrays.
    ListHandles = 44,
    /// Answers [`Kind::Put`], [`Kind::AskHandle`], [`Kind::Drop`], [`Kind::Lend`] and
    /// [`Kind::Pull`].
    Handle = 45,
    /// Answers [`Kind::ListHandles`].
    Handles = 46,
    /// Asks for the server's status.
    Status = 48,
    /// Answers [`Kind::Status`].
    StatusText = 49,
    /// Asks the server to take no more calls, and to end after those that it has.
    Drain = 50,
    /// Answers [`Kind::Drain`].
    Draining = 51,
    /// Asks the server to serve an interface file. A [`Kind::Listing`] of its functions answers.
    Register = 56,
    /// Lends an array: asks for a name under which another server may read it once.
    Lend = 57,
    /// Asks the server to read an array from another server.
    Pull = 58,
    /// Asks the server to write an array to an address outside of Farcall.
    Write = 59,
    /// Answers [`Kind::Write`].
    Receipt = 60,
    /// A server joins a metaserver's directory.
    Join = 64,
    /// A server's status report.
    Report = 65,
    /// A server leaves.
    Leave = 66,
    /// Answers [`Kind::Join`], [`Kind::Report`] and [`Kind::Leave`].
    Noted = 67,
    /// Asks a metaserver which servers have a function.
    Find = 68,
    /// Answers [`Kind::Find`].
    Found = 69,
    /// Asks a metaserver for the server of a call.
    Choose = 70,
    /// Answers [`Kind::Choose`].
    Chosen = 71,
    /// A client reports the outcome of a call. There is no answer.
    Observe = 72,
    /// Gives an array at the server a name.
    Name = 73,
    /// Answers [`Kind::Name`] and [`Kind::AskName`].
    Named = 74,
    /// Asks for data by name.
    AskName = 75,
    /// Asks for a page of named data.
    ListNames = 76,
    /// Answers [`Kind::ListNames`].
    Names = 77,
    /// A server tells a metaserver which named data it holds.
    Hold = 78,
    /// Asks a metaserver who holds named data.
    FindData = 79,
    /// Answers [`Kind::FindData`].
    DataFound = 80,
    /// Asks a metaserver for a page of named data.
    ListData = 81,
    /// Answers [`Kind::ListData`].
    DataListed = 82,
    /// Asks for a reservation.
    Reserve = 83,
    /// Releases a reservation.
    Release = 84,
    /// Asks for a page of the reservations.
    ListReservations = 85,
    /// Answers [`Kind::Reserve`], [`Kind::Release`], [`Kind::ListReservations`] and
    /// [`Kind::AttachReservation`].
    Reservations = 86,
    /// Gives the connection the bandwidth of a reservation.
    AttachReservation = 87,
    /// Asks a client for a proof of who it is, before the greeting of the server.
    Challenge = 88,
    /// Answers [`Kind::Challenge`].
    Proof = 89,
    /// Asks for the status of a call that is under way.
    AskCall = 90,
    /// Answers [`Kind::AskCall`].
    CallStatus = 91,
    /// Asks for a snapshot of the server. A [`Kind::StatusText`] answers.
    AskSnapshot = 94,
}

/// The subject of a frame: the part of either end that handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The connection itself.
    Connection,
    /// The functions of the server, and what it expects of calls.
    Functions,
    /// Calls, and what passes between caller and function while one runs.
    Calls,
    /// The data stream of a request, and the end of the request.
    Streams,
    /// Memory that both sides share.
    Memory,
    /// Objects, persistent ones included.
    Objects,
    /// Durable calls.
    Jobs,
    /// Stored arrays.
    Handles,
    /// Named data.
    Names,
    /// The directory of a metaserver.
    Directory,
    /// The status and the end of the server.
    Operation,
    /// Reservations.
    Reservations,
}

impl Kind {
    pub(crate) fn subject(self) -> Subject {
        use Kind::*;
        match self {
            Hello | Goodbye | Challenge | Proof => Subject::Connection,
            List | Listing | Describe | Interface | Register | Estimate | Estimated | AskCall
            | CallStatus => Subject::Functions,
            Call | Callback | Answer | Output => Subject::Calls,
            Data | Grant | Result | Done | Failure | Cancel => Subject::Streams,
            Share | Shared | Unshare => Subject::Memory,
            New | Created | Delete | KeepObject | AttachObject | DropObject | ListObjects
            | Objects => Subject::Objects,
            Submit | Submitted | AskJob | Job | Fetch | CancelJob | ListJobs | Jobs => {
                Subject::Jobs
            }
            Put | PutPart | Get | GetPart | AskHandle | Drop | Lend | Pull | Handle
            | ListHandles | Handles | Write | Receipt => Subject::Handles,
            Name | Named | AskName | ListNames | Names => Subject::Names,
            Join | Report | Leave | Noted | Find | Found | Choose | Chosen | Observe | Hold
            | FindData | DataFound | ListData | DataListed => Subject::Directory,
            Status | StatusText | Drain | Draining | AskSnapshot => Subject::Operation,
            Reserve | Release | ListReservations | AttachReservation | Reservations => {
                Subject::Reservations
            }
        }
    }

    /// Whether it opens a request of the client, with a new number.
    pub(crate) fn opens_request(self) -> bool {
        use Kind::*;
        match self {
            List | Describe | Register | Estimate | Call | Share | New | KeepObject
            | AttachObject | DropObject | ListObjects | Submit | AskJob | Fetch | CancelJob
            | ListJobs | Put | PutPart | Get | GetPart | AskHandle | Drop | Lend | Pull | Write
            | ListHandles | Name | AskName | ListNames | Join | Report | Leave | Find | Choose
            | Hold | FindData | ListData | Status | Drain | Reserve | Release
            | ListReservations | AttachReservation | AskCall | AskSnapshot => true,
            Hello | Goodbye | Challenge | Proof | Listing | Interface | Estimated | Data
            | Grant | Result | Done | Failure | Cancel | Callback | Answer | Output | Shared
            | Unshare | Created | Delete | Objects | Submitted | Job | Jobs | Handle | Handles
            | Receipt | Named | Names | Noted | Found | Chosen | Observe | DataFound
            | DataListed | StatusText | Draining | Reservations | CallStatus => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_kind() {
        let known = (0..=u8::MAX).filter_map(|byte| Some((byte, Kind::from_repr(byte)?)));
        let right = known.filter(|(byte, kind)| *kind as u8 == *byte);
        assert_eq!(right.count(), 84);
    }
}
