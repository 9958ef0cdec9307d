import farcall.Call;
import farcall.FarcallException;
import farcall.Function;
import farcall.RemoteArray;
import farcall.RemoteObject;
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
            methods(server);
        }
        try (Server server = new Server(arguments[0])) {
            arrays(server);
        }
        closed(new Server(arguments[0]));
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

    /** A stored array is closed while the arguments of a call are copied. */
    private static void arrays(Server server) throws InterruptedException {
        Function first = server.function("fails/first");
        double[] large = new double[1 << 25];
        double[] total = new double[1];
        RemoteArray stored = server.put(new double[] {1, 2, 3}, false);
        Thread caller = new Thread(() -> first.call(stored, large.length, large, total));
        caller.start();
        Thread.sleep(20);
        stored.close();
        try (RemoteArray other = server.put(new double[] {4, 5, 6}, false)) {
            caller.join();
        }
        // 0 if the array was closed before the call had it.
        if (total[0] > 1) {
            throw new AssertionError("the call got another array");
        }
    }

    /** A connection is closed while one thread calls with a stored array and one gets it. */
    private static void closed(Server server) throws InterruptedException {
        Function both = server.function("fails/both");
        RemoteArray stored = server.put(new double[] {1, 2, 3}, false);
        // To copy it takes until the others wait.
        double[] large = new double[1 << 25];
        double[] total = new double[1];
        Thread caller = new Thread(() -> both.call(large.length, large, stored, total));
        Thread closer = new Thread(server::close);
        Thread getter =
                new Thread(
                        () -> {
                            try {
                                stored.get(new double[3]);
                            } catch (IllegalStateException closed) {
                                return;
                            }
                        });
        caller.start();
        Thread.sleep(10);
        closer.start();
        while (closer.getState() == Thread.State.RUNNABLE) {
            Thread.onSpinWait();
        }
        getter.start();
        for (Thread thread : List.of(caller, closer, getter)) {
            thread.join(30_000);
            if (thread.isAlive()) {
                // It would keep the program alive, too.
                System.err.println("the threads wait for each other");
                System.exit(1);
            }
        }
    }

    /** The methods of an object that is closed, also by another thread, say so. */
    private static void methods(Server server) throws InterruptedException {
        RemoteObject counter = server.object("fails/Counter");
        Function add = counter.method("add");
        int[] value = new int[1];
        add.call(2, value);
        // An interrupt does not end a call that is not started.
        Thread.currentThread().interrupt();
        add.call(3, value);
        if (!Thread.interrupted() || value[0] != 5) {
            throw new AssertionError(value[0]);
        }
        String[] said = new String[1];
        Thread caller =
                new Thread(
                        () -> {
                            try {
                                add.call(60_000, new int[1]);
                            } catch (FarcallException error) {
                                said[0] = error.getMessage();
                            }
                        });
        caller.start();
        Thread.sleep(300);
        counter.close();
        caller.join();
        if (said[0] == null || !said[0].contains("its object was released")) {
            throw new AssertionError(said[0]);
        }
        for (Runnable use :
                List.<Runnable>of(
                        () -> add.call(1, value),
                        () -> add.start(1, value),
                        add::name,
                        add::times,
                        () -> counter.method("add"))) {
            try {
                use.run();
            } catch (IllegalStateException expected) {
                continue;
            }
            throw new AssertionError("a closed object is used");
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
