import farcall.FarcallException;
import farcall.Function;
import farcall.RemoteArray;
import farcall.Server;

/** An array is at the server before it is needed, and what a call makes of it stays there. */
public final class Handles {
    public static void main(String[] arguments) {
        double[] a = {4, 1, 2, 0, 5, 1, 1, 2, 6};
        double[] x = {1, -2, 3};
        int n = 3;
        int[] pivots = new int[n];
        int[] info = new int[1];
        try (Server server = new Server(arguments[0]);
                RemoteArray held = server.put(a, true, n, n)) {
            double[] b = product(a, x);
            server.call("dgesv", n, 1, held, n, pivots, b, n, info);
            expect(b, x);
            b = product(a, x);
            Function dgetrs = server.function("dgetrs");
            dgetrs.start("N", n, 1, held, n, pivots, b, n, info).get();
            expect(b, x);
            double[] factors = new double[n * n];
            held.get(factors);
            if (java.util.Arrays.equals(factors, a)) {
                throw new AssertionError("the factors");
            }
            try (RemoteArray vector = server.put(x, false)) {
                double[] back = new double[n];
                vector.get(back);
                expect(back, x);
                server.call("dgesv", n, 1, vector, n, pivots, b, n, info);
                throw new AssertionError("a vector is no matrix");
            } catch (FarcallException expected) {
                System.out.println(expected.getMessage());
            }
            try {
                server.put(new String[] {"text"}, false);
                throw new AssertionError("text stays at no server");
            } catch (FarcallException expected) {
                System.out.println(expected.getMessage());
            }
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    private static double[] product(double[] a, double[] x) {
        double[] b = new double[x.length];
        for (int column = 0; column < x.length; column++) {
            for (int row = 0; row < x.length; row++) {
                b[row] += a[column * x.length + row] * x[column];
            }
        }
        return b;
    }

    private static void expect(double[] given, double[] expected) {
        for (int index = 0; index < expected.length; index++) {
            if (Math.abs(given[index] - expected[index]) > 1e-12) {
                throw new AssertionError(index);
            }
        }
    }
}
