package farcall;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * The functions of {@code farcall.h}. The library is {@code libfarcall.so.1}, or the file that the
 * property {@code farcall.library} names.
 */
final class Native {
    static final int OK = 0;
    static final int RUNNING = 8;
    static final int CANCELLED = 9;

    /** {@code farcall_value}: data, bytes, kind, read_only. */
    static final StructLayout VALUE =
            MemoryLayout.structLayout(ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT);
    private static final StructLayout OPTIONS =
            MemoryLayout.structLayout(
                    JAVA_LONG, JAVA_DOUBLE, JAVA_DOUBLE, JAVA_INT, MemoryLayout.paddingLayout(4));
    private static final StructLayout TIMES =
            MemoryLayout.structLayout(
                    JAVA_DOUBLE, JAVA_DOUBLE, JAVA_DOUBLE, JAVA_DOUBLE, JAVA_DOUBLE);

    private static final SymbolLookup LIBRARY = library();

    private static final MethodHandle ABI_VERSION = find("farcall_abi_version", JAVA_INT);
    private static final MethodHandle CONNECT =
            find("farcall_connect_with", ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle DISCONNECT = findVoid("farcall_disconnect", ADDRESS);
    private static final MethodHandle FUNCTION =
            find("farcall_function_of", ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle OBJECT =
            find("farcall_object_new", ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle METHOD =
            find("farcall_object_method", ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle FREE_OBJECT = findVoid("farcall_drop_object", ADDRESS);
    private static final MethodHandle NAME = find("farcall_function_name", ADDRESS, ADDRESS);
    private static final MethodHandle INTERFACE =
            find("farcall_function_interface", ADDRESS, ADDRESS);
    private static final MethodHandle KIND =
            find("farcall_argument_kind", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle TYPE =
            find("farcall_argument_type", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle READ =
            find("farcall_argument_read", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle WRITTEN =
            find("farcall_argument_written", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle CALL =
            find("farcall_call_values", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle START =
            find("farcall_call_values_async", JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle PROBE = find("farcall_probe", JAVA_INT, JAVA_LONG);
    private static final MethodHandle WAIT = find("farcall_wait", JAVA_INT, JAVA_LONG, JAVA_DOUBLE);
    private static final MethodHandle WAIT_OR =
            find("farcall_wait_or", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_DOUBLE, ADDRESS);
    private static final MethodHandle WAIT_AND =
            find("farcall_wait_and", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_DOUBLE);
    private static final MethodHandle CANCEL = find("farcall_cancel", JAVA_INT, JAVA_LONG);
    private static final MethodHandle SESSION_TIMES =
            find("farcall_session_times", TIMES, JAVA_LONG);
    private static final MethodHandle FUNCTION_TIMES = find("farcall_times_of", TIMES, ADDRESS);
    private static final MethodHandle ALLOCATE =
            find("farcall_allocate", ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle FREE = findVoid("farcall_free", ADDRESS);
    private static final MethodHandle FREE_TEXTS =
            findVoid("farcall_free_texts", ADDRESS, JAVA_LONG);
    private static final MethodHandle PUT =
            find("farcall_put", ADDRESS, ADDRESS, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS);
    private static final MethodHandle GET =
            find("farcall_get", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle DROP = find("farcall_drop_array", JAVA_INT, ADDRESS);
    private static final MethodHandle ERROR_STATUS = find("farcall_error_status", JAVA_INT);
    private static final MethodHandle ERROR_MESSAGE = find("farcall_error_message", ADDRESS);

    private Native() {}

    static {
        int version = (int) invoke(() -> (int) ABI_VERSION.invokeExact());
        if (version != 1) {
            throw new UnsatisfiedLinkError("libfarcall has interface " + version + ", not 1");
        }
    }

    private static SymbolLookup library() {
        String file = System.getProperty("farcall.library", "libfarcall.so.1");
        try {
            return SymbolLookup.libraryLookup(file, Arena.global());
        } catch (IllegalArgumentException error) {
            throw new UnsatisfiedLinkError(
                    "cannot load "
                            + file
                            + ": name its folder in LD_LIBRARY_PATH, or the file with"
                            + " -Dfarcall.library=FILE");
        }
    }

    private static MethodHandle find(String name, MemoryLayout result, MemoryLayout... parameters) {
        return Linker.nativeLinker()
                .downcallHandle(symbol(name), FunctionDescriptor.of(result, parameters));
    }

    private static MethodHandle findVoid(String name, MemoryLayout... parameters) {
        return Linker.nativeLinker()
                .downcallHandle(symbol(name), FunctionDescriptor.ofVoid(parameters));
    }

    private static MemorySegment symbol(String name) {
        return LIBRARY.find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError("libfarcall has no " + name));
    }

    /** Calls a method handle, which declares Throwable and throws nothing. */
    private interface Body<T> {
        T run() throws Throwable;
    }

    private static <T> T invoke(Body<T> body) {
        try {
            return body.run();
        } catch (RuntimeException | Error error) {
            throw error;
        } catch (Throwable error) {
            throw new AssertionError(error);
        }
    }

    /** The same for a function that returns nothing. */
    private interface Action {
        void run() throws Throwable;
    }

    private static void run(Action action) {
        invoke(
                () -> {
                    action.run();
                    return null;
                });
    }

    /** The last failure of this thread. */
    static FarcallException failure() {
        int status = invoke(() -> (int) ERROR_STATUS.invokeExact());
        MemorySegment text = invoke(() -> (MemorySegment) ERROR_MESSAGE.invokeExact());
        return new FarcallException(FarcallException.Status.of(status), string(text));
    }

    static void check(int status) {
        if (status != OK) {
            throw failure();
        }
    }

    static MemorySegment connect(String address, double connectTimeout, double timeout) {
        if (address != null && address.indexOf('\0') >= 0) {
            throw new FarcallException(
                    FarcallException.Status.ARGUMENT, "the address has a NUL in it");
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text =
                    address == null ? MemorySegment.NULL : arena.allocateFrom(address);
            MemorySegment options = arena.allocate(OPTIONS);
            options.set(JAVA_LONG, 0, OPTIONS.byteSize());
            options.set(JAVA_DOUBLE, 8, connectTimeout);
            options.set(JAVA_DOUBLE, 16, timeout);
            return known(invoke(() -> (MemorySegment) CONNECT.invokeExact(text, options)));
        }
    }

    static MemorySegment allocate(MemorySegment server, long bytes, Arena arena) {
        MemorySegment memory =
                known(invoke(() -> (MemorySegment) ALLOCATE.invokeExact(server, bytes)));
        return memory.reinterpret(bytes, arena, Native::free);
    }

    private static void free(MemorySegment memory) {
        run(() -> { FREE.invokeExact(memory); });
    }

    /** Frees the texts that a call has made. */
    static void freeTexts(MemorySegment pointers, long count) {
        run(() -> { FREE_TEXTS.invokeExact(pointers, count); });
    }

    static void disconnect(MemorySegment server) {
        run(() -> { DISCONNECT.invokeExact(server); });
    }

    /** The handle of an array with a copy of these bytes. */
    static MemorySegment put(
            MemorySegment server, int kind, long[] shape, boolean columns, MemorySegment bytes) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment lengths = arena.allocateFrom(JAVA_LONG, shape);
            MemorySegment copy = arena.allocate(Math.max(1, bytes.byteSize()), 16);
            MemorySegment.copy(bytes, 0, copy, 0, bytes.byteSize());
            long rank = shape.length;
            int order = columns ? 1 : 0;
            return known(
                    invoke(() -> (MemorySegment)
                            PUT.invokeExact(server, kind, lengths, rank, order, copy)));
        }
    }

    static void get(MemorySegment handle, MemorySegment memory, long bytes) {
        check(invoke(() -> (int) GET.invokeExact(handle, memory, bytes)));
    }

    static void drop(MemorySegment handle) {
        check(invoke(() -> (int) DROP.invokeExact(handle)));
    }

    static MemorySegment object(MemorySegment server, String name) {
        return named(OBJECT, server, name);
    }

    static MemorySegment method(MemorySegment object, String name) {
        return named(METHOD, object, name);
    }

    static void freeObject(MemorySegment object) {
        run(() -> { FREE_OBJECT.invokeExact(object); });
    }

    static MemorySegment function(MemorySegment server, String name) {
        return named(FUNCTION, server, name);
    }

    private static MemorySegment named(MethodHandle find, MemorySegment of, String name) {
        if (name == null || name.indexOf('\0') >= 0) {
            String what = name == null ? "the name is null" : "the name has a NUL in it";
            throw new FarcallException(FarcallException.Status.ARGUMENT, what);
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocateFrom(name);
            return known(invoke(() -> (MemorySegment) find.invokeExact(of, text)));
        }
    }

    private static MemorySegment known(MemorySegment pointer) {
        if (pointer.address() == 0) {
            throw failure();
        }
        return pointer;
    }

    static String name(MemorySegment function) {
        return string(invoke(() -> (MemorySegment) NAME.invokeExact(function)));
    }

    static String text(MemorySegment function) {
        return string(invoke(() -> (MemorySegment) INTERFACE.invokeExact(function)));
    }

    static String string(MemorySegment text) {
        return text.reinterpret(Long.MAX_VALUE).getString(0);
    }

    /** The kind of an argument: {@link Kind#ARRAY}, or the type of the scalar. */
    static int kind(MemorySegment function, long index) {
        return invoke(() -> (int) KIND.invokeExact(function, index));
    }

    /** The type of a scalar, or of the elements of an array. */
    static int type(MemorySegment function, long index) {
        return invoke(() -> (int) TYPE.invokeExact(function, index));
    }

    static boolean isRead(MemorySegment function, long index) {
        return invoke(() -> (int) READ.invokeExact(function, index)) != 0;
    }

    static boolean isWritten(MemorySegment function, long index) {
        return invoke(() -> (int) WRITTEN.invokeExact(function, index)) != 0;
    }

    static void call(MemorySegment function, MemorySegment values, long count) {
        check(invoke(() -> (int) CALL.invokeExact(function, values, count)));
    }

    static long start(MemorySegment function, MemorySegment values, long count) {
        long session = invoke(() -> (long) START.invokeExact(function, values, count));
        if (session == 0) {
            throw failure();
        }
        return session;
    }

    static int probe(long session) {
        return invoke(() -> (int) PROBE.invokeExact(session));
    }

    /** The status of the session, or {@link #RUNNING} after so many seconds. */
    static int await(long session, double seconds) {
        return invoke(() -> (int) WAIT.invokeExact(session, seconds));
    }

    /** The session that has ended, also with a failure; 0 if there is none, -1 after the time. */
    static long awaitOne(long[] sessions, double seconds) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment list = arena.allocateFrom(JAVA_LONG, sessions);
            MemorySegment which = arena.allocate(JAVA_LONG);
            long count = sessions.length;
            int status = invoke(() -> (int) WAIT_OR.invokeExact(list, count, seconds, which));
            return status == RUNNING ? -1 : which.get(JAVA_LONG, 0);
        }
    }

    /** The status of the sessions, or {@link #RUNNING} after so many seconds. */
    static int awaitAll(long[] sessions, double seconds) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment list = arena.allocateFrom(JAVA_LONG, sessions);
            long count = sessions.length;
            return invoke(() -> (int) WAIT_AND.invokeExact(list, count, seconds));
        }
    }

    static void cancel(long session) {
        invoke(() -> (int) CANCEL.invokeExact(session));
    }

    static Times timesOfSession(long session) {
        try (Arena arena = Arena.ofConfined()) {
            SegmentAllocator allocator = arena;
            return times(
                    invoke(() -> (MemorySegment) SESSION_TIMES.invokeExact(allocator, session)));
        }
    }

    static Times timesOfFunction(MemorySegment function) {
        try (Arena arena = Arena.ofConfined()) {
            SegmentAllocator allocator = arena;
            return times(
                    invoke(() -> (MemorySegment) FUNCTION_TIMES.invokeExact(allocator, function)));
        }
    }

    private static Times times(MemorySegment times) {
        double[] seconds = times.toArray(JAVA_DOUBLE);
        return new Times(seconds[0], seconds[1], seconds[2], seconds[3], seconds[4]);
    }
}
