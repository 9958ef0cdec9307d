package farcall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The handle of a stored array, which calls take as an array. What a call writes to it remains at
 * the server. Close it before its server.
 */
public final class RemoteArray implements AutoCloseable {
    private final Server server;
    /** The type of its elements. */
    private final int kind;
    private MemorySegment handle;

    RemoteArray(Server server, int kind, MemorySegment handle) {
        this.server = server;
        this.kind = kind;
        this.handle = handle;
    }

    synchronized MemorySegment handle() {
        if (handle == null) {
            throw new IllegalStateException("the array is closed");
        }
        return handle;
    }

    /** Fills an array of numbers, after all earlier calls that use the stored array. */
    public void get(Object array) {
        MemorySegment memory = Arguments.memory(array);
        if (Arguments.kind(array) != kind) {
            throw new FarcallException(
                    FarcallException.Status.ARGUMENT,
                    "the stored array has elements of another type than " + array.getClass());
        }
        long bytes = memory.byteSize();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment copy = arena.allocate(Math.max(1, bytes), 16);
            // The connection first and then the array, as in a call: otherwise the two can wait
            // for each other while the server is being closed.
            server.whileOpen(() -> fill(copy, bytes));
            memory.copyFrom(copy.asSlice(0, bytes));
        }
    }

    private synchronized Void fill(MemorySegment copy, long bytes) {
        Native.get(handle(), copy, bytes);
        return null;
    }

    /** Drops the array at the server. Calls that use it complete. */
    @Override
    public synchronized void close() {
        if (handle != null) {
            // The library frees the handle, also if the server does not answer.
            MemorySegment dropped = handle;
            handle = null;
            Native.drop(dropped);
        }
    }
}
