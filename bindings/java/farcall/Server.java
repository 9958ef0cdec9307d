package farcall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;

/**
 * A connection to a server. Any thread may use it and its functions. Closing it cancels the calls
 * under way.
 *
 * <pre>{@code
 * try (Server server = new Server("farcall://host:3717")) {
 *     Function dgesv = server.function("lapack/dgesv");
 *     int[] pivots = new int[n], info = new int[1];
 *     dgesv.call(n, 1, a, n, pivots, b, n, info);
 *     Call call = dgesv.start(n, 1, a, n, pivots, b, n, info);
 *     call.get();
 * }
 * }</pre>
 */
public final class Server implements AutoCloseable {
    private final String address;
    /** Calls hold it for reading, so that the connection is not closed while they use it. */
    private final ReadWriteLock lock = new ReentrantReadWriteLock();
    private MemorySegment server;

    /** Connects to the server that the environment names, or else to this machine. */
    public Server() {
        this(null);
    }

    /** Connects to {@code farcall://host:port}, {@code unix:///path} or {@code ssh://host}. */
    public Server(String address) {
        this(address, Duration.ZERO, Duration.ZERO);
    }

    /**
     * The same with time limits; zero is the default.
     *
     * @param connectTimeout longest time to wait for a connection
     * @param timeout longest time for one call, from its start to its end
     */
    public Server(String address, Duration connectTimeout, Duration timeout) {
        Release.check();
        this.address = address;
        this.server = Native.connect(address, seconds(connectTimeout), seconds(timeout));
    }

    /** A time in seconds, also one that is longer than a number of nanoseconds can tell. */
    private static double seconds(Duration time) {
        return time.getSeconds() + time.getNano() * 1e-9;
    }

    /** The function with this name, {@code module/name} or just {@code name}. */
    public Function function(String name) {
        return whileOpen(() -> new Function(this, null, Native.function(server, name)));
    }

    /** Makes an object of a class, {@code module/name} or {@code name} alone. */
    public RemoteObject object(String name) {
        return whileOpen(() -> new RemoteObject(this, Native.object(server, name)));
    }

    /**
     * Stores an array at the server, for later calls.
     *
     * @param array {@code byte[]}, {@code short[]}, {@code int[]}, {@code long[]}, {@code float[]}
     *     or {@code double[]}
     * @param columns whether the first index varies fastest, as BLAS and LAPACK need it
     * @param shape its lengths; none for a vector
     */
    public RemoteArray put(Object array, boolean columns, long... shape) {
        return whileOpen(
                () -> {
                    MemorySegment memory = Arguments.memory(array);
                    long elements = memory.byteSize() / Arguments.size(array);
                    long[] lengths = shape.length > 0 ? shape : new long[] {elements};
                    checkShape(lengths, elements);
                    int kind = Arguments.kind(array);
                    return new RemoteArray(
                            this, kind, Native.put(server, kind, lengths, columns, memory));
                });
    }

    /** Refuses a shape that has another number of elements. */
    private static void checkShape(long[] shape, long elements) {
        if (count(shape) != elements) {
            throw new FarcallException(
                    FarcallException.Status.ARGUMENT,
                    "the shape "
                            + Arrays.toString(shape)
                            + " is not that of an array of "
                            + elements
                            + " elements");
        }
    }

    /** The number of elements; -1 if no array has so many. */
    private static long count(long[] shape) {
        long count = 1;
        for (long length : shape) {
            if (length < 0 || Math.multiplyHigh(count, length) != 0) {
                return -1;
            }
            count *= length;
        }
        return count;
    }

    /** Calls a function by name. */
    public void call(String name, Object... arguments) {
        function(name).call(arguments);
    }

    /**
     * Memory of zeros for arrays, until the arena closes. If the server is on this host, the memory
     * is shared with the server, and calls do not copy it.
     */
    public MemorySegment allocate(long bytes, Arena arena) {
        return whileOpen(() -> Native.allocate(server, bytes, arena));
    }

    /** Waits for the calls of other threads, and cancels those that {@code start} has started. */
    @Override
    public void close() {
        lock.writeLock().lock();
        try {
            if (server != null) {
                Native.disconnect(server);
                server = null;
            }
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Uses the connection, which remains open meanwhile. */
    <T> T whileOpen(Supplier<T> body) {
        lock.readLock().lock();
        try {
            if (server == null) {
                throw new IllegalStateException("the connection to " + this + " is closed");
            }
            return body.get();
        } finally {
            lock.readLock().unlock();
        }
    }

    @Override
    public String toString() {
        return address == null ? "the default server" : address;
    }
}
