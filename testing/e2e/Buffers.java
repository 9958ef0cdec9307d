import farcall.Call;
import farcall.FarcallException;
import farcall.Function;
import farcall.RemoteArray;
import farcall.Server;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.List;

/** Arrays of Java are what the function takes, or are refused; nothing is read beside them. */
public final class Buffers {
    private static final int LARGE = 1 << 20;

    public static void main(String[] arguments) throws Exception {
        try (Server server = new Server(arguments[0])) {
            buffers(server.function("arrays/sum"));
            shared(server.function("arrays/two"));
            stored(server);
            unreferenced(server.function("arrays/two"));
            texts(server);
        }
    }

    private static void texts(Server server) {
        refused("the name is null", () -> server.function(null));
        refused("a NUL in it", () -> server.function("arrays/sum\0"));
        refused("the address has a NUL in it", () -> new Server("farcall://127.0.0.1:1\0").close());
        Function code = server.function("arrays/code");
        int[] number = new int[1];
        code.call('e', number);
        expect('e', number[0]);
        refused("is 'é', which has several bytes", () -> code.call('é', number));
        refused("argument `c`: expected char, given NULL", () -> code.call(null, number));
        Function length = server.function("arrays/length");
        length.call("é", number);
        expect(2, number[0]);
        refused("a text with a NUL in it", () -> length.call("\0", number));
    }

    private static void buffers(Function sum) {
        double[] total = new double[1];
        ByteBuffer swapped = ByteBuffer.allocateDirect(24).order(other());
        refused("a buffer whose bytes are", () -> sum.call(3, swapped.asDoubleBuffer(), total));
        refused("a buffer whose bytes are", () -> sum.call(3, swapped, total));
        refused("3 of long", () -> sum.call(3, LongBuffer.allocate(3), total));
        refused("6 of float", () -> sum.call(3, FloatBuffer.allocate(6), total));
        refused("6 of int", () -> sum.call(3, IntBuffer.allocate(6), total));
        refused("pass a number", () -> sum.call(3, CharBuffer.allocate(12), total));
        DoubleBuffer part = DoubleBuffer.wrap(new double[] {9, 1, 2, 3, 9});
        sum.call(3, part.position(1).limit(4), total);
        expect(6, total[0]);
        ByteBuffer direct = ByteBuffer.allocateDirect(24).order(ByteOrder.nativeOrder());
        direct.asDoubleBuffer().put(new double[] {2, 3, 4});
        sum.call(3, direct, total);
        expect(9, total[0]);
        sum.call(3, direct.asDoubleBuffer(), total);
        expect(9, total[0]);
        MemorySegment closed;
        try (Arena arena = Arena.ofConfined()) {
            closed = arena.allocateFrom(ValueLayout.JAVA_DOUBLE, 1, 2, 3);
        }
        refused("an arena that is closed", () -> sum.call(3, closed, total));
    }

    private static ByteOrder other() {
        boolean isLittle = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
        return isLittle ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    }

    /** Two results need an array each. */
    private static void shared(Function two) {
        double[] x = new double[6];
        refused("shares memory", () -> two.call(6, x, x));
        DoubleBuffer late = DoubleBuffer.wrap(x, 2, 4);
        refused("shares memory", () -> two.call(4, DoubleBuffer.wrap(x, 0, 4), late));
        two.call(3, DoubleBuffer.wrap(x, 0, 3), DoubleBuffer.wrap(x, 3, 3));
        expect(2, x[2]);
        expect(100, x[3]);
    }

    private static void stored(Server server) {
        double[] x = {1, 2, 3, 4, 5, 6};
        refused("the shape [3, 3]", () -> server.put(x, true, 3, 3));
        refused("the shape [-2, -3]", () -> server.put(x, true, -2, -3));
        refused("the shape [", () -> server.put(x, true, Long.MAX_VALUE, 4));
        try (RemoteArray held = server.put(x, true, 2, 3)) {
            refused("of another type", () -> held.get(new long[6]));
            double[] back = new double[6];
            held.get(back);
            expect(6, back[5]);
        }
    }

    /** The memory of a call stays, also if the program has dropped it. */
    private static void unreferenced(Function two) throws Exception {
        List<Call> calls = new ArrayList<>();
        double[] y = new double[LARGE];
        for (int index = 0; index < 4; index++) {
            calls.add(two.start(LARGE, ByteBuffer.allocateDirect(8 * LARGE)
                    .order(ByteOrder.nativeOrder()), y));
        }
        for (int index = 0; index < 4; index++) {
            System.gc();
            Thread.sleep(50);
        }
        Call.waitAll(calls);
        expect(100 + LARGE - 1, y[LARGE - 1]);
    }

    private static void refused(String text, Runnable call) {
        try {
            call.run();
        } catch (FarcallException expected) {
            if (!expected.getMessage().contains(text)) {
                throw new AssertionError(text, expected);
            }
            return;
        }
        throw new AssertionError("no error: " + text);
    }

    private static void expect(double expected, double given) {
        if (expected != given) {
            throw new AssertionError(given + " is not " + expected);
        }
    }
}
