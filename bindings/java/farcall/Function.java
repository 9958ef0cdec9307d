package farcall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.util.function.Supplier;

/**
 * A function of a server or a method of an object. It is valid as long as these are open. Any
 * thread may call it.
 *
 * <p>Pass arguments in the order of the interface. Numbers, {@link Complex} and String are scalars.
 * The call fills arrays of numbers in place. It copies an array of a Java type to native memory and
 * back, and uses a direct buffer or a native MemorySegment in place.
 */
public final class Function {
    private final MemorySegment function;
    private final Server server;
    /** The object of a method; null for a function. */
    private final RemoteObject object;

    Function(Server server, RemoteObject object, MemorySegment function) {
        this.server = server;
        this.object = object;
        this.function = function;
    }

    /** Calls the function, and returns when its arrays are filled. */
    public void call(Object... arguments) {
        if (object != null) {
            // The object can be closed meanwhile: a call that has started keeps the method.
            server.whileOpen(() -> start(arguments).complete());
            return;
        }
        server.whileOpen(
                () -> {
                    try (Arena arena = Arena.ofConfined()) {
                        Arguments given = new Arguments(arena, function, arguments);
                        try {
                            Native.call(function, given.values(), given.count());
                        } finally {
                            given.giveBack();
                        }
                        given.copyBack();
                        return null;
                    } finally {
                        // Buffers are used in place: they stay until here.
                        Reference.reachabilityFence(arguments);
                    }
                });
    }

    /** Starts a call. */
    public Call start(Object... arguments) {
        return whileOpen(() -> startOpen(arguments));
    }

    private Call startOpen(Object[] arguments) {
        Arena arena = Arena.ofShared();
        try {
            Arguments given = new Arguments(arena, function, arguments);
            try {
                long session = Native.start(function, given.values(), given.count());
                return new Call(session, arena, given, arguments);
            } finally {
                given.giveBack();
            }
        } catch (RuntimeException | Error error) {
            arena.close();
            throw error;
        }
    }

    /** {@code module/name}. */
    public String name() {
        return whileOpen(() -> Native.name(function));
    }

    /** The interface, in the interface language. */
    public String text() {
        return whileOpen(() -> Native.text(function));
    }

    /** The times of the last call, in any thread. */
    public Times times() {
        return whileOpen(() -> Native.timesOfFunction(function));
    }

    /** Uses the function, whose connection and object remain open meanwhile. */
    private <T> T whileOpen(Supplier<T> body) {
        return server.whileOpen(() -> object == null ? body.get() : object.whileOpen(body));
    }

    @Override
    public String toString() {
        return name() + " of " + server;
    }
}
