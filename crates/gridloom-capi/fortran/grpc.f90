! GridRPC for Fortran 2018, over the C functions of grpc.h: the same names, errors, rules of threads and of lifetime.
!
!   use grpc
!   type(grpc_function_handle_t), target :: dgesv
!   integer(c_int) :: error
!   error = grpc_initialize("grid.toml")
!   error = grpc_function_handle_default(dgesv, "lapack/dgesv")
!   error = grpc_call(dgesv, n, nrhs, a, pivots, b, info)
!
!   gfortran -c target/capi/include/grpc.f90 && gfortran program.f90 grpc.o -Ltarget/capi/lib -lgridloom
!
! Differences from C
! - Texts are Fortran's: trailing blanks do not count. Arrays have their lengths with them.
! - All arguments of a call are passed by reference, so that IN scalars may be variables, constants and expressions, of
!   the kind that the signature has: int32 is integer(c_int), int64 integer(c_int64_t), float64 real(c_double), bool
!   logical(c_bool). Nobody checks that. An IN string ends in c_null_char: "text"//c_null_char.
! - An array has to be contiguous: a section such as a(1:n, 1:n) of a larger array, and transpose(a), which may be no
!   copy, are GRPC_OTHER_ERROR_CODE. Assign them to an array. What is not allocated counts as left out: an error, too.
! - Arrays are passed as they lie in memory. A parameter a[m][n] of a "FORTRAN" function is a(m, n) here. Of a "C" or
!   Python function it is a(n, m): the same memory with its indices the other way round. For a matrix as it is written,
!   pass an array that was assigned transpose(a), and take transpose of the result.
! - What a session writes its results to has the TARGET and ASYNCHRONOUS attributes where it is declared, so that the
!   compiler knows that a wait changes it; the handle has TARGET if grpc_get_handle is used. Without them, what is read
!   after grpc_wait may be an old value. Inputs may be changed once grpc_call_async has returned.
! - An argument stack holds addresses of variables (push), which have the TARGET attribute and live until the call, or
!   for results until the wait; and copies of scalars and texts (push_value), for inputs. It grows as needed.
! - Calls stand in statements of their own: Fortran need not evaluate a function if the rest of an expression decides.
!
! The files beside this one, which it includes, say how objects, attributes, blocks and data that stay on servers are written in
! Fortran. This is the one to compile.
include "grpc_texts.f90"
include "grpc_errors.f90"
include "grpc_stacks.f90"
include "grpc_calls.f90"
include "grpc_objects.f90"
include "grpc_attributes.f90"
include "grpc_sessions.f90"
include "grpc_blocks.f90"
include "grpc_plans.f90"
include "grpc_heuristics.f90"
include "grpc_graphs.f90"
include "grpc_remotes.f90"
include "grpc_data.f90"

! All of it.
module grpc
    use grpc_errors
    use grpc_stacks
    use grpc_calls
    use grpc_objects
    use grpc_attributes
    use grpc_sessions
    use grpc_blocks
    use grpc_plans
    use grpc_heuristics
    use grpc_graphs
    use grpc_remotes
    use grpc_data
    implicit none
    public
    ! Of the modules alone.
    private :: refuse, code_of, take_all, as_c, destruct
end module grpc
