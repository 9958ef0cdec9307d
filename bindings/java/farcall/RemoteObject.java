package farcall;

import java.lang.foreign.MemorySegment;

/**
 * An object at a server. It has its own process, which holds its state. Its methods run one after
 * the other. Close it before its server, and do not use its methods after that.
 */
public final class RemoteObject implements AutoCloseable {
    private final Server server;
    private MemorySegment object;

    RemoteObject(Server server, MemorySegment object) {
        this.server = server;
        this.object = object;
    }

    /** The method with this name. Call it like a function. */
    public synchronized Function method(String name) {
        if (object == null) {
            throw new IllegalStateException("the object is closed");
        }
        return new Function(server, server.whileOpen(() -> Native.method(object, name)));
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
