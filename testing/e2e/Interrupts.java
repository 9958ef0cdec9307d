import farcall.Call;
import farcall.Function;
import farcall.Server;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.Callable;

/** An interrupt ends every wait, and the call goes on. */
public final class Interrupts {
    public static void main(String[] arguments) throws Exception {
        try (Server server = new Server(arguments[0])) {
            Function nap = server.function("nap");
            int[] slept = new int[1];
            Call call = nap.start(2000, slept);
            interrupted(call::get);
            interrupted(() -> Call.waitAny(List.of(call)));
            interrupted(
                    () -> {
                        Call.waitAll(List.of(call));
                        return null;
                    });
            call.get();
            if (slept[0] != 2000) {
                throw new AssertionError("the call has not gone on");
            }
        }
    }

    private static void interrupted(Callable<?> wait) throws Exception {
        Thread waiter = Thread.currentThread();
        new Timer(true)
                .schedule(
                        new TimerTask() {
                            @Override
                            public void run() {
                                waiter.interrupt();
                            }
                        },
                        200);
        try {
            wait.call();
        } catch (InterruptedException expected) {
            return;
        }
        throw new AssertionError("the wait went on");
    }
}
