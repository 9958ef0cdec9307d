// The calls of libfarcall that Octave needs, behind one function, `__farcall__ (VERB, ...)`.
//
// Servers, objects, functions and calls in progress are values of Octave that count their owners:
// a server is disconnected when nothing needs it any more.
#include "calls.h"

#include <octave/ov-base.h>
#include <octave/parse.h>

#include <climits>
#include <variant>

namespace
{

// ---- Values of Octave ----

using Thing = std::variant<std::monostate, std::shared_ptr<Server>, std::shared_ptr<Object>,
                           std::shared_ptr<Function>, std::shared_ptr<Call>>;

class octave_farcall : public octave_base_value
{
public:
  octave_farcall () = default;
  explicit octave_farcall (Thing thing) : m_thing (std::move (thing)) { }

  octave_base_value *clone () const override { return new octave_farcall (*this); }
  octave_base_value *empty_clone () const override { return new octave_farcall (); }
  bool is_defined () const override { return true; }
  dim_vector dims () const override { return dim_vector (1, 1); }

  std::string text () const
  {
    if (auto *server = std::get_if<std::shared_ptr<Server>> (&m_thing))
      return "<farcall server at "
             + ((*server)->address.empty () ? "the usual address" : (*server)->address) + ">";
    if (auto *object = std::get_if<std::shared_ptr<Object>> (&m_thing))
      return "<farcall object " + (*object)->name + ">";
    if (auto *function = std::get_if<std::shared_ptr<Function>> (&m_thing))
      return farcall_function_interface ((*function)->handle);
    if (auto *call = std::get_if<std::shared_ptr<Call>> (&m_thing))
      return "<call of " + (*call)->function->name () + ">";
    return "<nothing of farcall>";
  }
  void print (std::ostream& stream, bool) override { print_raw (stream); newline (stream); }
  void print_raw (std::ostream& stream, bool = false) const override { stream << text (); }
  bool print_as_scalar () const override { return true; }

  // `server.name` and `object.name` are functions.
  octave_value_list subsref (const std::string& type, const std::list<octave_value_list>& index,
                             int nargout) override
  {
    if (type[0] != '.' || m_thing.index () == 0 || m_thing.index () > 2)
      refuse (text () + " has no elements");
    const char *reader = m_thing.index () == 1 ? "farcall_function" : "farcall_method";
    octave_value_list given;
    given(0) = octave_value (clone ());
    given(1) = index.front () (0);
    octave_value_list found = octave::feval (reader, given, 1);
    return type.length () == 1 ? found : found(0).next_subsref (nargout, type, index);
  }
  octave_value subsref (const std::string& type, const std::list<octave_value_list>& index) override
  {
    const octave_value_list found = subsref (type, index, 1);
    return found.length () > 0 ? found(0) : octave_value ();
  }

  template <typename T> std::shared_ptr<T> get () const
  {
    auto *found = std::get_if<std::shared_ptr<T>> (&m_thing);
    return found ? *found : nullptr;
  }

private:
  Thing m_thing;
  DECLARE_OV_TYPEID_FUNCTIONS_AND_DATA
};

DEFINE_OV_TYPEID_FUNCTIONS_AND_DATA (octave_farcall, "farcall", "farcall");

octave_value wrap (Thing thing)
{
  return octave_value (new octave_farcall (std::move (thing)));
}

// The thing that an argument is, which must be of this kind.
template <typename T>
std::shared_ptr<T> unwrap (const octave_value& value, const char *what, const char *from)
{
  std::shared_ptr<T> found;
  if (value.type_id () == octave_farcall::static_type_id ())
    found = static_cast<const octave_farcall&> (value.get_rep ()).get<T> ();
  if (! found)
    refuse (std::string (what) + ", from " + from + " ()");
  return found;
}

std::shared_ptr<Server> server_of (const octave_value& value)
{
  return unwrap<Server> (value, "SERVER must be a connection", "farcall_connect");
}

std::shared_ptr<Function> function_of (const octave_value& value)
{
  return unwrap<Function> (value, "F must be a function of a server", "farcall_function");
}

std::shared_ptr<Call> call_of (const octave_value& value)
{
  return unwrap<Call> (value, "CALL must be a call in progress", "farcall_start");
}

// ---- Verbs ----

// A name or an address, which the library would read up to its first NUL.
std::string name_of (const octave_value& value, const char *what)
{
  const std::string name = value.string_value ();
  if (name.find ('\0') != std::string::npos)
    refuse (std::string (what) + " has a NUL in it");
  return name;
}

octave_value connect (const octave_value_list& given)
{
  farcall_options options = {};
  options.size = sizeof options;
  options.timeout = given(1).double_value ();
  const std::string address = name_of (given(0), "ADDRESS");
  farcall_server *handle = farcall_connect_with (address.empty () ? nullptr : address.c_str (),
                                                 &options);
  if (handle == nullptr)
    fail ();
  return wrap (std::shared_ptr<Server> (new Server {handle, address}));
}

octave_value function (const octave_value_list& given)
{
  auto server = server_of (given(0));
  farcall_function *handle = farcall_function_of (server->handle,
                                                  name_of (given(1), "NAME").c_str ());
  if (handle == nullptr)
    fail ();
  return wrap (std::make_shared<Function> (Function {server, nullptr, handle}));
}

octave_value object (const octave_value_list& given)
{
  auto server = server_of (given(0));
  const std::string name = name_of (given(1), "CLASS");
  farcall_object *handle = farcall_object_new (server->handle, name.c_str ());
  if (handle == nullptr)
    fail ();
  return wrap (std::shared_ptr<Object> (new Object {server, handle, name}));
}

octave_value method (const octave_value_list& given)
{
  auto object = unwrap<Object> (given(0), "OBJECT must be an object of a server", "farcall_new");
  farcall_function *handle = farcall_object_method (object->handle,
                                                    name_of (given(1), "NAME").c_str ());
  if (handle == nullptr)
    fail ();
  return wrap (std::make_shared<Function> (Function {object->server, object, handle}));
}

octave_value times (const octave_value_list& given)
{
  const farcall_times times = farcall_session_times (call_of (given(0))->session);
  octave_scalar_map told;
  told.assign ("send", times.send);
  told.assign ("exec", times.exec);
  told.assign ("recv", times.recv);
  told.assign ("other", times.other);
  told.assign ("total", times.total);
  return told;
}

octave_value result (const octave_value_list& given)
{
  auto call = call_of (given(0));
  const double seconds = given(1).double_value ();
  if (! (seconds >= 0))
    refuse ("TIMEOUT must be a number of seconds from 0 on");
  if (! wait (*call, seconds))
    {
      char text[80];
      snprintf (text, sizeof text, "the call has not ended within %g s", seconds);
      fail (text, FARCALL_TIMEOUT);
    }
  return results (*call);
}

octave_value done (const octave_value_list& given)
{
  auto call = call_of (given(0));
  return call->has_ended || farcall_probe (call->session) != FARCALL_RUNNING;
}

octave_value cancel (const octave_value_list& given)
{
  return farcall_cancel (call_of (given(0))->session) == FARCALL_OK;
}

octave_value begin (const octave_value_list& given)
{
  return wrap (start (function_of (given(0)), given.slice (1, given.length () - 1)));
}

octave_value call (const octave_value_list& given)
{
  auto call = start (function_of (given(0)), given.slice (1, given.length () - 1));
  wait (*call, std::numeric_limits<double>::infinity ());
  return results (*call);
}

octave_value interface (const octave_value_list& given)
{
  return std::string (farcall_function_interface (function_of (given(0))->handle));
}

struct Verb
{
  const char *name;
  // Arguments after the verb.
  int least, most;
  octave_value (*run) (const octave_value_list&);
};

const Verb verbs[] = {
  {"connect", 2, 2, connect},   {"function", 2, 2, function},
  {"object", 2, 2, object},     {"method", 2, 2, method},
  {"interface", 1, 1, interface}, {"call", 1, INT_MAX, call},
  {"start", 1, INT_MAX, begin}, {"result", 2, 2, result},
  {"done", 1, 1, done},         {"cancel", 1, 1, cancel},
  {"times", 1, 1, times},
};

}

DEFMETHOD_DLD (__farcall__, interpreter, args, ,
           "-*- texinfo -*-\n\
@deftypefn {} {@var{result} =} __farcall__ (@var{verb}, @dots{})\n\
What the other functions of this package do. It is not for programs.\n\
@end deftypefn")
{
  if (octave_farcall::static_type_id () < 0)
    {
      octave_farcall::register_type ();
      // Values may live until the end of the program, and so must their code.
      interpreter.mlock ();
    }
  const std::string name = args.length () > 0 ? args(0).xstring_value ("no verb") : "";
  for (const Verb& verb : verbs)
    if (name == verb.name && args.length () - 1 >= verb.least && args.length () - 1 <= verb.most)
      return ovl (verb.run (args.slice (1, args.length () - 1)));
  error ("__farcall__: no verb `%s` with these arguments", name.c_str ());
}
