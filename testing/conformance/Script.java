import farcall.Call;
import farcall.Complex;
import farcall.FarcallException;
import farcall.Function;
import farcall.RemoteObject;
import farcall.Server;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The call script in Java: prints what script.txt says. The server is the first argument. */
public final class Script {
    private Script() {}

    /** Runs the script. */
    public static void main(String[] args) throws Exception {
        try (Server server = new Server(args[0])) {
            arrays(server);
            kinds(server);
            files(server);
            objects(server);
            errors(server);
            several(server);
        }
    }

    /** Numbers times 100, so that every language prints them alike. */
    private static void show(String name, double... values) {
        StringBuilder line = new StringBuilder(name).append(":");
        for (double value : values) {
            line.append(" ").append(Math.round(100 * value));
        }
        System.out.println(line);
    }

    private static void arrays(Server server) {
        double[] values = new double[6], x = {1, 2, 3}, sum = new double[1];
        double[] data = {0, 1, 2, 3, 4, 5, 6, 7};
        short[] shorts = {10, -20, 30};
        float[] floats = {1.5f, 2.5f, 3.5f};
        byte[] bytes = {64, 11, 96};
        long[] sums = new long[3];
        int[] a = {1, 2, 3, 4, 5, 6};

        server.call("conformance/scalars", 'A', -2, 300000, 5000000000L, 1.5f, -0.25, values);
        show("scalars", values);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment y = server.allocate(3 * Double.BYTES, arena);
            y.copyFrom(MemorySegment.ofArray(new double[] {10, 20, 30}));
            server.call("conformance/axpy", 3, 2.0, x, y);
            show("axpy", y.toArray(ValueLayout.JAVA_DOUBLE));
        }
        server.call("conformance/types", 3, shorts, floats, bytes, sums);
        System.out.printf("types: %d %d %d%n", sums[0], sums[1], sums[2]);
        server.call("conformance/section", 2, 3, a);
        System.out.printf(
                "section: %d %d %d %d %d %d%n", a[0], a[1], a[2], a[3], a[4], a[5]);
        server.call("conformance/shrunk", 8, 1, 7, 2, data, sum);
        show("shrunk", sum);
    }

    private static void kinds(Server server) {
        byte[] text = new byte[32];
        int[] length = new int[1];
        double[] z = {1, 0, 0, 2};
        float[] conjugate = new float[2];
        double[] unsorted = {5, -3, 2, 1}, sorted = new double[4];
        double[] x = {1, 2, 3}, y = {4, 5, 6}, dot = new double[1], grid = new double[6];

        server.call("conformance/greet", "hello", "world", 32, text, length);
        System.out.printf("greet: %s (%d)%n", new String(text, 0, length[0]), length[0]);
        byte[] joined = new byte[64];
        String[] words = {"one", "", "three"};
        server.call("conformance/join", 3, words, "+", joined, length);
        System.out.printf("join: %s (%d)%n", new String(joined, 0, length[0]), length[0]);
        String[] parts = new String[4], full = {"one", "two full", ""};
        server.call("conformance/split", "one,,three,a dozen characters", ',', 4, parts, length);
        System.out.printf("split: %s (%d)%n", String.join("|", parts), length[0]);
        server.call("conformance/capitals", 3, 8, full);
        System.out.printf("capitals: %s%n", String.join("|", full));
        server.call(
                "conformance/rotate", 2, new Complex(0, 1), z, new Complex(1.5, 2.5), conjugate);
        System.out.printf(
                "rotate: %.0f %.0f %.0f %.0f / %.0f %.0f%n",
                100 * z[0], 100 * z[1], 100 * z[2], 100 * z[3], 100 * conjugate[0],
                100 * conjugate[1]);
        server.call("conformance/sort", 4, unsorted, sorted);
        show("sort", sorted);
        server.call("conformance/dot", 3, x, y, dot);
        show("dot", dot);
        server.call("conformance/grid", 3, 2, grid);
        show("grid", grid);
    }

    private static void failing(String what, Runnable body) {
        try {
            body.run();
            System.out.println(what + ": done");
        } catch (FarcallException error) {
            System.out.println(what + ": " + error.status().name().toLowerCase().replace('_', ' '));
        }
    }

    private static void files(Server server) {
        long[] bytes = new long[1];

        server.call("conformance/upper", "text", "capitals", "tally", bytes);
        System.out.printf("files: %d bytes%n", bytes[0]);
        failing(
                "no such file",
                () -> server.call("conformance/upper", "nothing", "new", "tally", bytes));
    }

    private static void objects(Server server) {
        int[][] values = new int[3][1];

        try (RemoteObject one = server.object("conformance/Counter");
                RemoteObject other = server.object("Counter")) {
            one.method("add").call(3, values[0]);
            other.method("add").call(7, values[1]);
            one.method("add").call(7, values[2]);
        }
        System.out.printf(
                "objects: %d %d %d%n", values[0][0], values[1][0], values[2][0]);
        failing(
                "method of no object",
                () -> server.call("conformance/Counter.add", 1, values[0]));
    }

    private static void errors(Server server) {
        double[] x = {1, 2, 3}, y = {4, 5, 6}, dot = new double[1];
        float[] floats = {1, 2, 3};

        failing("wrong argument", () -> server.call("conformance/dot", 3, floats, y, dot));
        failing("unknown function", () -> server.call("conformance/nothing"));
        failing("crash", () -> server.call("conformance/crash", 1));
        server.call("conformance/dot", 3, x, y, dot);
        show("after the crash", dot);
    }

    private static void several(Server server) throws Exception {
        Function nap = server.function("conformance/nap");
        int[][] slept = new int[3][1];
        List<Call> calls = new ArrayList<>();
        int ended = 0;

        for (int i = 0; i < 3; i++) {
            calls.add(nap.start(10 * (i + 1), slept[i]));
        }
        Call.waitAll(calls);
        System.out.printf("several at once: %d %d %d%n", slept[0][0], slept[1][0], slept[2][0]);

        calls.clear();
        for (int i = 0; i < 3; i++) {
            calls.add(nap.start(1, slept[i]));
        }
        while (!calls.isEmpty()) {
            Call call = Call.waitAny(calls);
            call.get();
            calls.remove(call);
            ended++;
        }
        System.out.printf("wait any: %d of 3%n", ended);

        Call call = nap.start(300, slept[0]);
        System.out.printf("time-out: %s, ", endsIn(call, 10) ? "ended" : "running");
        call.get();
        System.out.printf("then %d%n", slept[0][0]);

        call = nap.start(60000, slept[0]);
        call.cancel(true);
        try {
            call.get();
        } catch (CancellationException cancelled) {
            System.out.println("cancel: cancelled");
        }
    }

    private static boolean endsIn(Call call, long millis) throws Exception {
        try {
            call.get(millis, TimeUnit.MILLISECONDS);
            return true;
        } catch (TimeoutException running) {
            return false;
        }
    }
}
