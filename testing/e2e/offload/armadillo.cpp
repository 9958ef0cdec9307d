// Decompositions by Armadillo, for a program that knows nothing of Farcall.
#include <armadillo>
#include <cstdio>

int main()
{
    const arma::uword n = 120;
    arma::mat a(n, n);
    for (arma::uword j = 0; j < n; j++)
        for (arma::uword i = 0; i < n; i++)
            a(i, j) = 1.0 / (1 + std::abs(double(i) - double(j))) + (i == j ? 3 : 0);
    const arma::vec b = a * arma::ones(n), x = arma::solve(a, b);
    std::printf("solution: %d\n", arma::approx_equal(x, arma::ones(n), "absdiff", 1e-10));
    arma::vec values, singular;
    arma::mat vectors, u, v;
    arma::eig_sym(values, vectors, a);
    std::printf("eigenvalues: %.6f %.6f\n", values(0), values(n - 1));
    arma::svd(u, singular, v, a * a);
    std::printf("singular values: %.6f %.6f\n", singular(0), singular(n - 1));
    std::printf("determinant: %.6f\n", std::log(arma::det(a)));
}
