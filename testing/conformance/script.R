# The call script in R: its output must equal script.txt. The server is the first argument.
library(farcall)

server <- farcall_connect(commandArgs(trailingOnly = TRUE)[1])
f <- function(name) farcall_function(server, paste0("conformance/", name))
whole <- function(values) format(round(as.double(values)), scientific = FALSE, trim = TRUE)
say <- function(name, ...) cat(name, ": ", ..., "\n", sep = "")
# Numbers times 100, so that every language prints them alike.
show <- function(name, values) say(name, paste(whole(100 * values), collapse = " "))
text <- function(bytes) rawToChar(bytes[seq_len(match(as.raw(0), bytes) - 1)])

arrays <- function() {
    show("scalars", f("scalars")("A", -2, 300000, 5e9, 1.5, -0.25)$values)
    show("axpy", f("axpy")(3, 2, c(1, 2, 3), c(10, 20, 30))$y)
    sums <- f("types")(n = 3, s = c(10, -20, 30), f = c(1.5, 2.5, 3.5), c = c(64, 11, 96))$sums
    say("types", paste(whole(sums), collapse = " "))
    a <- f("section")(2, 3, matrix(1:6, 2, byrow = TRUE))$a
    say("section", paste(t(a), collapse = " "))
    shrunk <- f("shrunk")(size = 8, start = 1, end = 7, step = 2, x = as.double(0:7))
    show("shrunk", shrunk$sum)
}

kinds <- function() {
    greeting <- f("greet")(greeting = "hello", name = "world", room = 32)
    say("greet", text(greeting$text), " (", greeting$length, ")")
    joined <- f("join")(n = 3, words = c("one", "", "three"), between = "+")
    say("join", text(joined$text), " (", joined$length, ")")
    parts <- f("split")(text = "one,,three,a dozen characters", at = ",", n = 4)
    say("split", paste(parts$words, collapse = "|"), " (", parts$count, ")")
    words <- f("capitals")(3, 8, c("one", "two full", ""))$words
    say("capitals", paste(words, collapse = "|"))
    rotated <- f("rotate")(n = 2, by = 1i, z = c(1, 2i), w = 1.5 + 2.5i)
    parts <- function(z) paste(whole(100 * c(rbind(Re(z), Im(z)))), collapse = " ")
    say("rotate", parts(rotated$z), " / ", parts(rotated$conjugate))
    show("sort", f("sort")(n = 4, x = c(5, -3, 2, 1))$sorted)
    show("dot", f("dot")(n = 3, x = c(1, 2, 3), y = c(4, 5, 6))$r)
    a <- f("grid")(rows = 3, columns = 2)$a
    stopifnot(dim(a) == c(3, 2), a[3, 1] == 31)
    show("grid", as.vector(a))
}

failing <- function(what, expression) {
    tryCatch(expression, farcall_error = function(error) {
        say(what, gsub("_", " ", sub("farcall_", "", class(error)[1])))
    })
}

files <- function() {
    upper <- f("upper")
    moved <- upper(text = "text", capitals = "capitals", tally = "tally")
    say("files", moved$bytes, " bytes")
    failing("no such file", upper("nothing", "new", "tally"))
}

objects <- function() {
    one <- farcall_new(server, "conformance/Counter")
    other <- farcall_new(server, "Counter")
    values <- c(one$add(3)$value, other$add(7)$value, one$add(7)$value)
    say("objects", paste(values, collapse = " "))
    failing("method of no object", f("Counter.add")(1))
}

errors <- function() {
    x <- c(1, 2, 3)
    y <- c(4, 5, 6)
    failing("wrong argument", f("dot")(n = 3, x = x[1:2], y = y))
    failing("unknown function", f("nothing"))
    failing("crash", f("crash")(1))
    show("after the crash", f("dot")(n = 3, x = x, y = y)$r)
}

several <- function() {
    nap <- f("nap")
    calls <- lapply(1:3, function(i) farcall_start(nap, ms = 10 * i))
    say("several at once", paste(sapply(calls, function(call) farcall_result(call, 30)$slept), collapse = " "))

    left <- lapply(1:3, function(i) farcall_start(nap, ms = 1))
    count <- 0
    while (length(left) > 0) {
        ended <- sapply(left, farcall_done)
        count <- count + sum(ended)
        left <- left[!ended]
    }
    say("wait any", count, " of 3")

    call <- farcall_start(nap, ms = 300)
    waited <- tryCatch(farcall_result(call, 0.01), farcall_timeout = function(error) "running")
    say("time-out", waited, ", then ", farcall_result(call, 30)$slept)

    call <- farcall_start(nap, ms = 60000)
    farcall_cancel(call)
    say("cancel", tryCatch(farcall_result(call), error = function(error) "cancelled"))
}

arrays()
kinds()
files()
objects()
errors()
several()
