// Decompositions by Eigen, which calls LAPACK and BLAS. The program knows nothing of Farcall.
#define EIGEN_USE_BLAS
#define EIGEN_USE_LAPACKE
#include <Eigen/Dense>
#include <cstdio>

int main()
{
    const int n = 120;
    Eigen::MatrixXd a(n, n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            a(i, j) = 1.0 / (1 + std::abs(i - j)) + (i == j ? 3 : 0);
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(n), b = a * ones;
    const Eigen::VectorXd lu = a.partialPivLu().solve(b), cholesky = a.llt().solve(b);
    std::printf("solutions: %d %d\n", lu.isApprox(ones, 1e-10), cholesky.isApprox(ones, 1e-10));
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> of(a);
    std::printf("eigenvalues: %.6f %.6f\n", of.eigenvalues()(0), of.eigenvalues()(n - 1));
    const Eigen::MatrixXd product = a * a.transpose();
    std::printf("product: %.6f\n", product.trace());
}
