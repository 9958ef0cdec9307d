import farcall.Server;

/** The rod of rod.c in Java. The server is the first argument, or FARCALL_SERVER. */
public final class Rod {
    private Rod() {}

    /** Solves it. */
    public static void main(String[] args) {
        int n = 200;
        double h = 1.0 / (n + 1);
        double[] a = new double[n * n];
        double[] u = new double[n];
        int[] pivots = new int[n];
        int[] info = new int[1];

        for (int i = 0; i < n; i++) {
            a[i * n + i] = 2;
            if (i > 0) {
                a[i * n + i - 1] = -1;
                a[(i - 1) * n + i] = -1;
            }
            u[i] = h * h * Math.PI * Math.PI * Math.sin(Math.PI * (i + 1) * h);
        }
        try (Server server = args.length > 0 ? new Server(args[0]) : new Server()) {
            server.call("lapack/dgesv", n, 1, a, n, pivots, u, n, info);
        }
        double error = 0;
        for (int i = 0; i < n; i++) {
            error = Math.max(error, Math.abs(u[i] - Math.sin(Math.PI * (i + 1) * h)));
        }
        System.out.printf("%d points: info %d, largest error %.3e%n", n, info[0], error);
    }
}
