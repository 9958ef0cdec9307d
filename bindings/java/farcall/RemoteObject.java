package farcall;

import java.lang.foreign.MemorySegment;
import java.util.function.Supplier;

/**
 * An object at a server. It has its own process, which holds its state. Its methods run one after
 * the other. Close it before its server. Its methods cannot be called after that.
 */
public final class RemoteObject implements AutoCloseable {
    private final Server server;
    private MemorySegment object;

    RemoteObject(Server server, MemorySegment object) {
        this.server = server;
        this.object = object;
    }

    /** The method with this name. Call it like a function. */
    public Function method(String name) {
        // The connection first, as in a call of a method.
        return server.whileOpen(
                () -> whileOpen(() -> new Function(server, this, Native.method(object, name))));
    }

    /** Uses the object, which remains open meanwhile. */
    synchronized <T> T whileOpen(Supplier<T> body) {
        if (object == null) {
            throw new IllegalStateException("the object is closed");
        }
        return body.get();
    }

    /** Drops the object at the server; calls under way fail. */
    @Override
    public synchronized void close() {
        if (object != null) {
            Native.freeObject(object);
            object = null;
        }
    }
}
