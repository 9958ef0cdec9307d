package farcall;

import java.lang.foreign.MemorySegment;

/**
 * An object on a server, in a process of its own, which holds its state. Its methods run one after
 * the other. Close it before its server, and use its methods no more then.
 */
public final class RemoteObject implements AutoCloseable {
    private final Server server;
    private MemorySegment object;

    RemoteObject(Server server, MemorySegment object) {
        this.server = server;
        this.object = object;
    }

    /** The method of that name, which is called as functions are. */
    public synchronized Function method(String name) {
        if (object == null) {
            throw new IllegalStateException("the object is closed");
        }
        return new Function(server, server.whileOpen(() -> Native.method(object, name)));
    }

    /** Destroys the object; calls under way fail. */
    @Override
    public synchronized void close() {
        if (object != null) {
            Native.freeObject(object);
            object = null;
        }
    }
}
