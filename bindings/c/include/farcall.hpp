/*
 * Calls functions of a Farcall server from C++20. Link with -lfarcall.
 *
 *     farcall::Server server("farcall://host:3717");
 *     auto dgesv = server.function("lapack/dgesv");
 *     std::vector<double> a(n * n), b(n);
 *     std::vector<std::int32_t> pivots(n);
 *     std::int32_t info;
 *     dgesv(n, 1, a, n, pivots, b, n, farcall::out(info));
 *     farcall::Future future = dgesv.async(n, 1, a, n, pivots, b, n, farcall::out(info));
 *     future.get();
 *
 * Pass arguments in the order of the interface. Numbers, complex numbers and texts are scalars and
 * are copied. std::vector, std::array, std::span, arrays and other contiguous ranges are arrays,
 * which the call fills in place; farcall::out(x) is an array of one element. The call checks type
 * and size against the interface, and const against whether it writes to the argument. A range of
 * std::string is an array of strings, which the call replaces by its results. For a callback, pass
 * a function or a lambda, with the parameters that farcall.h needs. A failure
 * throws a farcall::Error.
 */
#ifndef FARCALL_HPP
#define FARCALL_HPP

#if defined(__cplusplus) && __cplusplus <= 201703L
#error "farcall.hpp needs C++20: compile with -std=c++20"
#endif

#include "farcall.h"

#include <array>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace farcall {

using Status = farcall_status;
using Times = farcall_times;

/* An operation that failed: what() has the message, and status() says whose fault it was. */
class Error : public std::runtime_error {
public:
  Error(Status status, const std::string &text) : std::runtime_error(text), status_(status) {}

  Status status() const noexcept { return status_; }

  /* The last failure of this thread. */
  static Error last() { return {farcall_error_status(), farcall_error_message()}; }

private:
  Status status_;
};

/* A variable that a call writes to. */
template <class T> std::span<T, 1> out(T &variable) { return std::span<T, 1>(&variable, 1); }

namespace detail {

template <class T> struct is_complex : std::false_type {};
template <class T> struct is_complex<std::complex<T>> : std::true_type {};

/* An integer of at most 64 bits: extensions of C++ have larger ones. */
template <class T>
concept Integer = std::integral<T> && sizeof(T) <= sizeof(std::int64_t);

template <class T>
concept Element = Integer<T> || std::same_as<T, float> || std::same_as<T, double> ||
                  std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>;

template <class T>
concept Text = std::convertible_to<const T &, std::string_view> && !std::ranges::view<T> &&
               !std::is_null_pointer_v<std::remove_cv_t<T>> &&
               !(std::is_array_v<T> && !std::is_const_v<std::remove_extent_t<T>>);

template <class R>
concept Array = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                Element<std::remove_cvref_t<std::ranges::range_value_t<R>>>;

/* A range of texts: std::vector<std::string>, an array of std::string_view. */
template <class R>
concept Texts = std::ranges::sized_range<R> && !std::convertible_to<const R &, std::string_view> &&
                std::convertible_to<std::ranges::range_reference_t<R>, std::string_view>;

/* How to call a function object with the addresses of its arguments. */
template <class Method> struct Unpack;
template <class F, class R, class... Args> struct Unpack<R (F::*)(Args...)> {
  static void call(F &function, void *const *arguments) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      function(*static_cast<std::remove_cvref_t<Args> *>(arguments[I])...);
    }(std::index_sequence_for<Args...>{});
  }
};
template <class F, class R, class... Args>
struct Unpack<R (F::*)(Args...) const> : Unpack<R (F::*)(Args...)> {};
template <class F, class R, class... Args>
struct Unpack<R (F::*)(Args...) noexcept> : Unpack<R (F::*)(Args...)> {};
template <class F, class R, class... Args>
struct Unpack<R (F::*)(Args...) const noexcept> : Unpack<R (F::*)(Args...)> {};

template <class R, class... Args> struct Unpack<R (*)(Args...)> {
  static void call(R (*function)(Args...), void *const *arguments) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      function(*static_cast<std::remove_cvref_t<Args> *>(arguments[I])...);
    }(std::index_sequence_for<Args...>{});
  }
};

/* A lambda with captures, or another function object. */
template <class F>
concept FunctionObject = std::is_class_v<F> && requires { &F::operator(); };

/* What FARCALL_CLOSURE points to. An exception of the function becomes the error of the call. */
struct Closure {
  const char *(*function)(void *user, void *const *arguments) = nullptr;
  void *user = nullptr;

  template <FunctionObject F> static Closure of(const F &object) {
    return {[](void *user, void *const *arguments) {
              return problem_of([&] {
                Unpack<decltype(&F::operator())>::call(*static_cast<F *>(user), arguments);
              });
            },
            const_cast<F *>(&object)};
  }

  template <class R, class... Args> static Closure of(R (*function)(Args...)) {
    if (function == nullptr)
      throw Error(FARCALL_ARGUMENT, "expected a function, given NULL");
    return {[](void *user, void *const *arguments) {
              return problem_of([&] {
                auto *address = reinterpret_cast<R (*)(Args...)>(user);
                Unpack<R (*)(Args...)>::call(address, arguments);
              });
            },
            reinterpret_cast<void *>(function)};
  }

private:
  /* Why a function failed; NULL if it did not. */
  template <class F> static const char *problem_of(F &&run) {
    static thread_local std::string problem;
    try {
      run();
      return nullptr;
    } catch (const std::exception &error) {
      problem = error.what();
    } catch (...) {
      problem = "an exception";
    }
    return problem.c_str();
  }
};

/* A function, a pointer to one, or a lambda without captures. */
template <class F>
concept Callable =
    requires(F f) { requires std::is_function_v<std::remove_pointer_t<decltype(+f)>>; };

template <Element T> constexpr farcall_kind kind_of() {
  if constexpr (std::same_as<T, float>)
    return FARCALL_FLOAT;
  else if constexpr (std::same_as<T, double>)
    return FARCALL_DOUBLE;
  else if constexpr (std::same_as<T, std::complex<float>>)
    return FARCALL_SCOMPLEX;
  else if constexpr (std::same_as<T, std::complex<double>>)
    return FARCALL_DCOMPLEX;
  else if constexpr (sizeof(T) == 1)
    return FARCALL_CHAR;
  else if constexpr (sizeof(T) == 2)
    return FARCALL_SHORT;
  else if constexpr (sizeof(T) == 4)
    return FARCALL_INT;
  else
    return FARCALL_LONG;
}

/* One argument: a copy of a scalar, or the place of an array. */
class Argument {
public:
  template <class T> explicit Argument(T &&given) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::same_as<Plain, std::string_view> || Text<std::remove_reference_t<T>>) {
      const std::string_view text = text_of(given);
      set(text.data(), text.size(), FARCALL_TEXT, true);
    } else if constexpr (Texts<T>) {
      /* The range may make each text only now, and then the item alone holds it. */
      for (auto &&item : given) {
        const std::string_view text = text_of(item);
        has_nul_ = has_nul_ || text.find('\0') != text.npos;
        texts_.append(text).push_back('\0');
      }
      set(texts_.data(), texts_.size(), FARCALL_TEXT, true);
      if constexpr (std::same_as<std::ranges::range_reference_t<T>, std::string &>) {
        may_return_texts_ = true;
        for (std::string &text : given)
          returned_.push_back(&text);
      }
    } else if constexpr (Integer<Plain>) {
      if constexpr (std::is_unsigned_v<Plain> && sizeof(Plain) == sizeof(std::int64_t))
        if (given > static_cast<Plain>(std::numeric_limits<std::int64_t>::max()))
          throw Error(FARCALL_ARGUMENT, "an integer is past 2^63 - 1");
      copy(static_cast<std::int64_t>(given));
    } else if constexpr (Element<Plain>) {
      copy(given);
    } else if constexpr (Callable<std::decay_t<T>>) {
      if constexpr (requires { Closure::of(+given); }) {
        closure_ = Closure::of(+given);
        value_ = {&closure_, sizeof closure_, static_cast<farcall_kind>(FARCALL_CLOSURE), true};
      } else { /* It has an ellipsis. */
        set(reinterpret_cast<const void *>(+given), sizeof(void *), FARCALL_FUNCTION, true);
      }
    } else if constexpr (FunctionObject<Plain> && !Array<T>) {
      closure_ = Closure::of<Plain>(given);
      value_ = {&closure_, sizeof closure_, static_cast<farcall_kind>(FARCALL_CLOSURE), true};
    } else {
      static_assert(Array<T>, "not a number, text, texts, or an array of numbers in one piece");
      using Item = std::remove_reference_t<std::ranges::range_reference_t<T>>;
      const std::size_t bytes = std::ranges::size(given) * sizeof(Item);
      set(std::ranges::data(given), bytes, kind_of<std::remove_const_t<Item>>(),
          std::is_const_v<Item>);
    }
  }

  /* Whether it has texts that a call can replace. */
  bool may_return_texts() const noexcept { return may_return_texts_; }

  /* Refuses texts with a NUL in them, which a call would not read as they are. */
  void check_texts() const {
    if (has_nul_)
      throw Error(FARCALL_ARGUMENT, "expected strings without NUL, given a range with one");
  }

  /* The pointers to the texts that the call replaces. */
  farcall_value texts() {
    for (std::string *text : returned_)
      pointers_.push_back(text->data());
    const std::size_t bytes = pointers_.size() * sizeof(char *);
    return {bytes > 0 ? static_cast<void *>(pointers_.data()) : scalar_, bytes, FARCALL_TEXTS, 0};
  }

  /* Takes the texts that a call has made. */
  void take() {
    for (std::size_t index = 0; index < pointers_.size(); index++)
      *returned_[index] = pointers_[index];
    farcall_free_texts(pointers_.data(), pointers_.size());
  }

  farcall_value value() {
    farcall_value value = value_;
    if (!texts_.empty()) /* A copy of the argument has moved it. */
      value.data = texts_.data();
    if (closure_.function != nullptr)
      value.data = &closure_;
    if (value.data == nullptr)
      value.data = scalar_;
    return value;
  }

private:
  void set(const void *data, std::size_t bytes, farcall_kind kind, bool read_only) {
    /* An empty range may have no memory. */
    value_ = {bytes > 0 ? const_cast<void *>(data) : scalar_, bytes, kind, read_only};
  }

  template <class T> static std::string_view text_of(const T &given) {
    if constexpr (std::is_pointer_v<T>)
      if (given == nullptr)
        throw Error(FARCALL_ARGUMENT, "expected a text, given NULL");
    return std::string_view(given);
  }

  template <class T> void copy(const T &number) {
    static_assert(sizeof(T) <= sizeof scalar_);
    std::memcpy(scalar_, &number, sizeof number);
    value_ = {nullptr, sizeof number, kind_of<T>(), 1};
  }

  alignas(16) std::byte scalar_[16] = {};
  Closure closure_;
  std::string texts_;
  bool has_nul_ = false;
  bool may_return_texts_ = false;
  std::vector<std::string *> returned_;
  std::vector<char *> pointers_;
  farcall_value value_;
};

/* Whether an argument is a temporary, whose memory would not outlive an asynchronous call. */
template <class T>
constexpr bool outlives = std::is_lvalue_reference_v<T> || Element<std::remove_cvref_t<T>> ||
                          Text<std::remove_reference_t<T>> || Callable<std::decay_t<T>> ||
                          std::ranges::borrowed_range<T>;

/* Calls the function, and takes the texts that come back. */
template <class... Args> void call(const farcall_function *function, Args &&...args) {
  std::array<Argument, sizeof...(Args)> arguments{Argument(std::forward<Args>(args))...};
  std::array<farcall_value, sizeof...(Args)> values;
  std::array<bool, sizeof...(Args)> returns_texts{};
  for (std::size_t index = 0; index < values.size(); index++) {
    returns_texts[index] =
        arguments[index].may_return_texts() && farcall_argument_written(function, index);
    if (!returns_texts[index] || farcall_argument_read(function, index))
      arguments[index].check_texts();
    values[index] = returns_texts[index] ? arguments[index].texts() : arguments[index].value();
  }
  if (farcall_call_values(function, values.data(), values.size()) != FARCALL_OK)
    throw Error::last();
  for (std::size_t index = 0; index < values.size(); index++)
    if (returns_texts[index])
      arguments[index].take();
}

template <class... Args> farcall_session start(const farcall_function *function, Args &&...args) {
  std::array<Argument, sizeof...(Args)> arguments{Argument(std::forward<Args>(args))...};
  std::array<farcall_value, sizeof...(Args)> values;
  for (std::size_t index = 0; index < values.size(); index++) {
    if (arguments[index].may_return_texts() && farcall_argument_written(function, index))
      throw Error(FARCALL_ARGUMENT, "strings come back from a call that waits; of an asynchronous "
                                    "one pass them as rows of char");
    arguments[index].check_texts();
    values[index] = arguments[index].value();
  }
  const farcall_session session =
      farcall_call_values_async(function, values.data(), values.size());
  if (session == 0)
    throw Error::last();
  return session;
}

/* A name or an address, which C would read up to the first NUL. */
inline const char *c_text(const std::string &text) {
  if (text.find('\0') != text.npos)
    throw Error(FARCALL_ARGUMENT, "expected a name without NUL, given one with a NUL in it");
  return text.c_str();
}

inline const char *c_text(const char *text) {
  if (text == nullptr)
    throw Error(FARCALL_ARGUMENT, "expected an address, given NULL");
  return text;
}

inline double seconds(std::chrono::duration<double> time) {
  return time.count() < 0 ? 0 : time.count();
}

} // namespace detail

/* A call under way. The destructor cancels it. Do not use the arrays of the call until then, or
 * until a wait has reported its end. */
class Future {
public:
  Future() = default;
  explicit Future(farcall_session session) : session_(session) {}
  Future(Future &&other) noexcept : session_(std::exchange(other.session_, 0)) {}
  Future &operator=(Future &&other) noexcept {
    if (this != &other) {
      cancel();
      session_ = std::exchange(other.session_, 0);
    }
    return *this;
  }
  ~Future() { cancel(); }

  /* Waits for the end, and throws if the call failed. */
  void get() {
    if (farcall_wait(session_, -1) != FARCALL_OK)
      throw Error::last();
  }

  /* Waits for the end, at most so long, also if the call fails; false if the time ends first. */
  bool wait_for(std::chrono::duration<double> time) const {
    return farcall_wait(session_, detail::seconds(time)) != FARCALL_RUNNING;
  }

  /* Whether the call has ended, also if it has failed. */
  bool done() const noexcept { return farcall_probe(session_) != FARCALL_RUNNING; }

  /* Gives the call up, if it has not ended; get() then throws. */
  void cancel() noexcept {
    if (session_ != 0)
      farcall_cancel(session_);
  }

  Times times() const noexcept { return farcall_session_times(session_); }
  farcall_session session() const noexcept { return session_; }

private:
  farcall_session session_ = 0;
};

/* Waits until one of the calls has ended, and returns its index. */
inline std::size_t wait_any(std::span<const Future> futures) {
  std::vector<farcall_session> sessions;
  for (const Future &future : futures)
    sessions.push_back(future.session());
  farcall_session which = 0;
  farcall_wait_or(sessions.data(), sessions.size(), -1, &which);
  for (std::size_t index = 0; index < sessions.size(); index++)
    if (which != 0 && sessions[index] == which)
      return index;
  throw Error::last();
}

/* Waits until all of the calls have ended, and throws if one failed. */
inline void wait_all(std::span<const Future> futures) {
  std::vector<farcall_session> sessions;
  for (const Future &future : futures)
    sessions.push_back(future.session());
  if (farcall_wait_and(sessions.data(), sessions.size(), -1) != FARCALL_OK)
    throw Error::last();
}

/* A function of a server. It is valid as long as the server. */
class Function {
public:
  explicit Function(farcall_function *function) : function_(function) {}

  /* Calls the function, and returns when its OUT and INOUT arrays are filled. */
  template <class... Args> void operator()(Args &&...args) const {
    detail::call(function_, std::forward<Args>(args)...);
  }

  /* Starts a call. Its arrays must not move until it has ended. */
  template <class... Args> [[nodiscard]] Future async(Args &&...args) const {
    static_assert((detail::outlives<Args> && ...),
                  "an array of an asynchronous call would end before the call");
    return Future(detail::start(function_, std::forward<Args>(args)...));
  }

  std::string name() const { return farcall_function_name(function_); }
  /* The interface, in the interface language. */
  std::string interface() const { return farcall_function_interface(function_); }
  /* The library that computed the last call: name, version and kernel, if it states them. */
  std::string library() const { return farcall_library_of(function_); }
  /* The times of the last call, in any thread. */
  Times times() const noexcept { return farcall_times_of(function_); }

private:
  farcall_function *function_;
};

/* Options of a connection; zeros are the defaults. */
struct Options {
  std::chrono::duration<double> connect_timeout{0};
  /* The longest time for one call, from its start to its end. */
  std::chrono::duration<double> timeout{0};
  /* Treat a server on this host like one on another host: without shared memory. */
  bool other_host = false;
};

/* A connection to a server. The destructor closes it and cancels asynchronous calls under way. */
class Server {
public:
  /* Connects to the server that the environment names, or else to this machine. */
  Server() : server_(connect(nullptr, Options{})) {}
  explicit Server(const std::string &address, const Options &options = {})
      : server_(connect(detail::c_text(address), options)) {}
  explicit Server(const char *address, const Options &options = {})
      : server_(connect(detail::c_text(address), options)) {}
  Server(Server &&other) noexcept : server_(std::exchange(other.server_, nullptr)) {}
  Server &operator=(Server &&other) noexcept {
    std::swap(server_, other.server_);
    return *this;
  }
  ~Server() { farcall_disconnect(server_); }

  Function function(const std::string &name) const {
    farcall_function *function = farcall_function_of(server_, detail::c_text(name));
    if (function == nullptr)
      throw Error::last();
    return Function(function);
  }

  template <class... Args> void call(const std::string &name, Args &&...args) const {
    function(name)(std::forward<Args>(args)...);
  }

  /* Makes an object of a class, which has its own process at the server. */
  class Object object(const std::string &name) const;

  /* Gives up all calls under way. */
  void cancel_all() noexcept {
    if (server_ != nullptr) /* NULL would mean those of all servers. */
      farcall_cancel_all(server_);
  }

private:
  template <detail::Element T> friend class Memory;

  static farcall_server *connect(const char *address, const Options &options) {
    const farcall_options given = {sizeof given, options.connect_timeout.count(),
                                   options.timeout.count(), options.other_host};
    farcall_server *server = farcall_connect_with(address, &given);
    if (server == nullptr)
      throw Error::last();
    return server;
  }

  farcall_server *server_ = nullptr;
};

/* An object at a server. The destructor drops it there. Its methods are functions, which run one
 * after the other and are valid as long as the object. It must not outlive its server. */
class Object {
public:
  explicit Object(farcall_object *object) : object_(object) {
    if (object_ == nullptr)
      throw Error::last();
  }
  Object(Object &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object &operator=(Object &&other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { farcall_drop_object(object_); }

  Function method(const std::string &name) const {
    farcall_function *method = farcall_object_method(object_, detail::c_text(name));
    if (method == nullptr)
      throw Error::last();
    return Function(method);
  }

private:
  farcall_object *object_;
};

inline Object Server::object(const std::string &name) const {
  return Object(farcall_object_new(server_, detail::c_text(name)));
}

/* An array of zeros. If the server is on this host, its memory is shared with the server, and calls
 * do not copy it. Otherwise it is ordinary memory. It may outlive the server. A call that was given
 * up may write to it until the server has ended the call: use another one for the next call. */
template <detail::Element T> class Memory {
public:
  using value_type = T;

  Memory(const Server &server, std::size_t size) : size_(size) {
    if (size > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw Error(FARCALL_ARGUMENT, "the array is larger than memory");
    data_ = static_cast<T *>(farcall_allocate(server.server_, size * sizeof(T)));
    if (data_ == nullptr)
      throw Error::last();
  }
  Memory(Memory &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Memory &operator=(Memory &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Memory() { farcall_free(data_); }

  T *data() noexcept { return data_; }
  const T *data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T *begin() noexcept { return data_; }
  T *end() noexcept { return data_ + size_; }
  const T *begin() const noexcept { return data_; }
  const T *end() const noexcept { return data_ + size_; }
  T &operator[](std::size_t index) noexcept { return data_[index]; }
  const T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace farcall

#endif
