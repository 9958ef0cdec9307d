import farcall.Call;
import farcall.FarcallException;
import farcall.Function;
import farcall.Server;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Threads that use the same call or the same connection. */
public final class Threads {
    public static void main(String[] arguments) throws Exception {
        try (Server server = new Server(arguments[0])) {
            failures(server.function("fails/late"), server.function("fails/both"));
        }
    }

    /** Virtual threads that wait for one call get its failure, and not that of another one. */
    private static void failures(Function late, Function both) throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            for (int round = 0; round < 20; round++) {
                Call call = late.start(20);
                List<Future<String>> said = new ArrayList<>();
                for (int thread = 0; thread < 40; thread++) {
                    said.add(threads.submit(() -> failure(call)));
                    threads.submit(() -> refused(both));
                }
                for (Future<String> text : said) {
                    if (!text.get().contains("the failure of this call")) {
                        throw new AssertionError(text.get());
                    }
                }
            }
        }
    }

    private static String failure(Call call) throws InterruptedException {
        try {
            call.get();
            return "no failure";
        } catch (ExecutionException error) {
            return error.getMessage();
        }
    }

    private static void refused(Function function) {
        try {
            function.call(1);
        } catch (FarcallException expected) {
            return;
        }
        throw new AssertionError("not refused");
    }
}
