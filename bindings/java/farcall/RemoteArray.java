package farcall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The handle of a stored array, which calls take as an array. What a call writes to it remains at
 * the server. Close it before its server.
 */
public final class RemoteArray implements AutoCloseable {
    private final Server server;
    private MemorySegment handle;

    RemoteArray(Server server, MemorySegment handle) {
        this.server = server;
        this.handle = handle;
    }

    synchronized MemorySegment handle() {
        if (handle == null) {
            throw new IllegalStateException("the array is closed");
        }
        return handle;
    }

    /** Fills an array of numbers, after all earlier calls that use the stored array. */
    public synchronized void get(Object array) {
        MemorySegment memory = Arguments.memory(array);
        long bytes = memory.byteSize();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment copy = arena.allocate(Math.max(1, bytes), 16);
            server.whileOpen(
                    () -> {
                        Native.get(handle(), copy, bytes);
                        return null;
                    });
            memory.copyFrom(copy.asSlice(0, bytes));
        }
    }

    /** Drops the array at the server. Calls that use it complete. */
    @Override
    public synchronized void close() {
        if (handle != null) {
            Native.drop(handle);
            handle = null;
        }
    }
}
