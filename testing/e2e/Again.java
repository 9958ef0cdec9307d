import farcall.Call;
import farcall.Function;
import farcall.Server;
import farcall.Times;
import java.util.ArrayList;
import java.util.List;

/** A call that has filled its arrays can be asked again after any number of later calls. */
public final class Again {
    /** More than the library remembers. */
    private static final int LATER = (1 << 16) + 200;

    private static final int AT_ONCE = 100;

    public static void main(String[] arguments) throws Exception {
        try (Server server = new Server(arguments[0])) {
            Function sum = server.function("sum");
            double[] x = {1, 2}, total = new double[1];
            Call first = sum.start(2, x, total);
            first.get();
            Times times = first.times();
            List<Call> calls = new ArrayList<>();
            for (int later = 0; later < LATER; later++) {
                calls.add(sum.start(2, x, new double[1]));
                if (calls.size() == AT_ONCE) {
                    Call.waitAll(calls);
                    calls.clear();
                }
            }
            total[0] = 7;
            first.get();
            if (!first.isDone() || first.isCancelled() || !first.times().equals(times)) {
                throw new AssertionError("the call was forgotten");
            }
            if (total[0] != 7) {
                throw new AssertionError("a second wait has filled the array again");
            }
        }
    }
}
