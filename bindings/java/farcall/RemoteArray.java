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
    private final MemorySegment handle;
    /** Calls that have the handle. The library frees it after the last one. */
    private int users;

    private boolean isClosed;

    RemoteArray(Server server, int kind, MemorySegment handle) {
        this.server = server;
        this.kind = kind;
        this.handle = handle;
    }

    /** The handle, which remains valid until {@link #giveBack()}. */
    synchronized MemorySegment take() {
        if (isClosed) {
            throw new IllegalStateException("the array is closed");
        }
        users++;
        return handle;
    }

    void giveBack() {
        synchronized (this) {
            users--;
            if (!isClosed || users > 0) {
                return;
            }
        }
        try {
            Native.drop(handle);
        } catch (FarcallException lost) {
            // The server has dropped its arrays, and the library has freed the handle.
        }
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
            // Without the lock of the array, for which a call would wait that closing waits for.
            server.whileOpen(() -> fill(copy, bytes));
            memory.copyFrom(copy.asSlice(0, bytes));
        }
    }

    private Void fill(MemorySegment copy, long bytes) {
        MemorySegment taken = take();
        try {
            Native.get(taken, copy, bytes);
            return null;
        } finally {
            giveBack();
        }
    }

    /** Drops the array at the server. Calls that use it complete. */
    @Override
    public void close() {
        synchronized (this) {
            boolean isLeft = isClosed || users > 0;
            isClosed = true;
            if (isLeft) {
                return;
            }
        }
        // The library frees the handle, also if the server does not answer.
        Native.drop(handle);
    }
}
