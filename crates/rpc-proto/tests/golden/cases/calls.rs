//! Golden cases of calls: scalars and arrays, callbacks, and files. The same call exists in both
//! byte orders.

use super::{Answer, Case, Elements, Request, case};
use farcall_idl::Scalar;
use farcall_rpc_proto::{
    CALLBACKS, Call, Callback, CallbackAnswer, FILES, FileRequest, OUTPUT, TRACES,
};

pub(super) const FUNCTION: u64 = 0x1234_0000_0007;
pub(super) const DGESV: &str = "Module lapack;\n\
     Define dgesv(IN int n, IN int nrhs, INOUT double a[n][lda:n], \
     IN int lda, OUT int ipiv[n], INOUT double b[nrhs][ldb:n], IN int ldb, OUT int *info)\n    \
     Calls \"FORTRAN\" dgesv(n, nrhs, a, lda, ipiv, b, ldb, info);\n";

/// The interface query and a call of dgesv: 2 x1 + x2 = 4, x1 + 3 x2 = 7.
pub(super) fn dgesv(name: &'static str, big_endian: bool) -> Case {
    let about = "Solves 2 x1 + x2 = 4, x1 + 3 x2 = 7 by dgesv with n = 2, nrhs = 1, lda = 3 and\n\
                 ldb = 2. The columns of `a` are 3 long, 2 of them travel. The result stream has\n\
                 the factors, the pivots, the solution 1, 2 and info.";
    let result = vec![
        Elements::Doubles(vec![2.0, 0.5, 1.0, 2.5]),
        Elements::Ints(vec![1, 2]),
        Elements::Doubles(vec![1.0, 2.0]),
        Elements::Ints(vec![0]),
    ];
    let describe = Request::Describe("dgesv");
    let exchanges = vec![
        (
            describe,
            Answer::Interface(FUNCTION, DGESV.to_string(), None),
        ),
        (dgesv_call(None, false), Answer::Result(result)),
    ];
    Case {
        big_endian,
        ..case(name, about, exchanges)
    }
}

pub(super) fn dgesv_call(pause_after: Option<usize>, cancels: bool) -> Request {
    let (call, data) = dgesv_values();
    Request::Call {
        call,
        data,
        result_bytes: 60,
        pause_after,
        cancels,
    }
}

/// A call of dgesv and its arrays.
pub(super) fn dgesv_values() -> (Call, Vec<Elements>) {
    let int = |value| Some(Scalar::Int(value));
    let call = Call {
        function: FUNCTION,
        scalars: vec![int(2), int(1), None, int(3), None, None, int(2), None],
        elements: vec![],
        data_bytes: 48,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    };
    let data = vec![
        Elements::Doubles(vec![2.0, 1.0, 1.0, 3.0]),
        Elements::Doubles(vec![4.0, 7.0]),
    ];
    (call, data)
}

pub(super) fn scalars() -> Case {
    let about = "A call with every kind of scalar and the values of two array elements that sizes\n\
                 depend on, without a data stream either way.";
    let call = Call {
        function: FUNCTION + 1,
        scalars: vec![
            Some(Scalar::Int(-5)),
            Some(Scalar::Int(i64::MAX)),
            Some(Scalar::Float(0.5)),
            Some(Scalar::Complex { re: 1.0, im: -2.0 }),
            Some(Scalar::Text("N".to_string())),
            Some(Scalar::Text("naïve".to_string())),
            None,
        ],
        elements: vec![17, -1],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 0,
        pause_after: None,
        cancels: false,
    };
    case("scalars", about, vec![(request, Answer::Result(vec![]))])
}

pub(super) fn traced() -> Case {
    let about = "A call that belongs to a trace: its last field has the ids of the trace and of\n\
                 the span, and the flags. Bit 23 of the features says that both sides know traces.";
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b8902b7-01";
    let call = Call {
        function: FUNCTION + 4,
        scalars: vec![Some(Scalar::Int(3))],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: context.parse().ok(),
        before: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 0,
        pause_after: None,
        cancels: false,
    };
    case("trace", about, vec![(request, Answer::Result(vec![]))]).offering(TRACES)
}

pub(super) fn callback() -> Case {
    let about = "A running function prints a line, tells its client of an iteration, and is told\n\
                 to stop, by monitor(IN int k, IN double residual, IN int n, IN double x[n],\n\
                 OUT int *stop).";
    let call = Call {
        function: FUNCTION + 2,
        scalars: vec![Some(Scalar::Int(100)), None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    };
    let call = Call {
        output: true,
        object: None,
        reservation: None,
        trace: None,
        before: None,
        ..call
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 4,
        pause_after: None,
        cancels: false,
    };
    let monitor = Callback {
        index: 0,
        scalars: vec![
            Some(Scalar::Int(1)),
            Some(Scalar::Float(0.25)),
            Some(Scalar::Int(2)),
            None,
            None,
        ],
        data: Elements::Doubles(vec![1.0, 2.0]).bytes(false),
        big_endian: false,
    };
    let stop = CallbackAnswer {
        data: Elements::Ints(vec![1]).bytes(false),
        big_endian: false,
    };
    let answer = Answer::CallsBack(monitor, stop, vec![Elements::Ints(vec![1])]);
    case("callback", about, vec![(request, answer)]).offering(CALLBACKS | OUTPUT)
}

pub(super) fn file() -> Case {
    let about = "A function counts the bytes of a file of its client, count(IN filename text,\n\
                 OUT int *bytes): the server reads the file in one piece. It prints a line\n\
                 before.";
    let call = Call {
        function: FUNCTION + 3,
        scalars: vec![Some(Scalar::Text("words.txt".to_string())), None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: true,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 4,
        pause_after: None,
        cancels: false,
    };
    let read = FileRequest::Read {
        offset: 0,
        length: 5,
    };
    let piece = CallbackAnswer {
        data: b"hello".to_vec(),
        big_endian: false,
    };
    let result = vec![Elements::Ints(vec![5])];
    let answer = Answer::CallsBack(read.into_callback(0), piece, result);
    case("file", about, vec![(request, answer)]).offering(CALLBACKS | OUTPUT | FILES)
}
