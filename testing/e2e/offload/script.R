# What scripts of R do, for an interpreter that knows nothing of Farcall.
n <- 120
a <- 1 / (1 + abs(outer(1:n, 1:n, "-"))) + diag(3, n)
b <- a %*% rep(1, n)
cat("solution:", max(abs(solve(a, b) - 1)) < 1e-10, "\n")
cat("inverse:", max(abs(solve(a) %*% a - diag(n))) < 1e-10, "\n")
s <- svd(a)
cat("singular values:", format(s$d[c(1, n)], digits = 7), "\n")
e <- eigen(a)
cat("eigenvalues:", format(e$values[c(1, n)], digits = 7), "\n")
g <- eigen(a + upper.tri(a))
cat("general:", format(max(Mod(g$values)), digits = 7), "\n")
cat("cholesky:", max(abs(crossprod(chol(a)) - a)) < 1e-10, "\n")
x <- sin(outer(1:200, 1:8))
y <- x %*% 1:8
cat("lm:", format(unname(coef(lm(y ~ x - 1))), digits = 7), "\n")
