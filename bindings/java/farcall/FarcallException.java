package farcall;

/** An operation that failed, with its message; the status says whose fault it was. */
public final class FarcallException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Whose fault a failure is; {@code farcall_status} of farcall.h. */
    public enum Status {
        /** No failure. */
        OK,
        /** The caller's fault: a wrong argument, name or address. */
        ARGUMENT,
        /** The server has no function of that name. */
        UNKNOWN_FUNCTION,
        /** The server cannot be reached, or the connection was lost. */
        CONNECTION,
        /** The server did not answer in time. */
        TIMEOUT,
        /** The called library crashed, ended its process, or exceeded a limit. */
        LIBRARY,
        /** The server refused the call or failed. */
        SERVER,
        /** A fault of libfarcall, or a status that this version does not know. */
        INTERNAL,
        /** The call has not ended. */
        RUNNING,
        /** The call was cancelled. */
        CANCELLED,
        /** There is no such session, or the library has forgotten it. */
        UNKNOWN_SESSION;

        static Status of(int number) {
            Status[] all = values();
            return number >= 0 && number < all.length ? all[number] : INTERNAL;
        }
    }

    private final Status status;

    FarcallException(Status status, String message) {
        super(message);
        this.status = status;
    }

    /** The status, which says whose fault it was. */
    public Status status() {
        return status;
    }
}
