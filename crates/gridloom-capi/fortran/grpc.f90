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
! - Strings are Fortran's: trailing blanks are ignored. Arrays carry their lengths.
! - All arguments of a call are passed by reference, so that IN scalars may be variables, constants and expressions,
!   of the kind in the signature: int32 is integer(c_int), int64 integer(c_int64_t), float64 real(c_double), bool
!   logical(c_bool). This is not checked. An IN string ends in c_null_char: "text"//c_null_char.
! - An array must be contiguous: a section such as a(1:n, 1:n) of a larger array, and transpose(a), which may not be a
!   copy, are GRPC_OTHER_ERROR_CODE. Assign them to an array first. An argument that is not allocated counts as
!   missing, which is an error, too.
! - Arrays are passed as they are in memory. A parameter a[m][n] of a "FORTRAN" function is a(m, n) here. Of a "C" or
!   Python function it is a(n, m): the same memory with the indices in reverse order. To pass a matrix as it is
!   written, pass an array to which transpose(a) was assigned, and transpose the result.
! - Variables to which a session writes its results have the TARGET and ASYNCHRONOUS attributes in their declaration,
!   so that the compiler knows that a wait changes them; the handle has TARGET if grpc_get_handle is used. Without
!   them, a read after grpc_wait may return an old value. Inputs may be changed once grpc_call_async has returned.
! - An argument stack contains addresses of variables (push), which have the TARGET attribute and must exist until the
!   call, or for results until the wait; and copies of scalars and strings (push_value), for inputs. It grows as
!   needed.
! - Use calls in separate statements: Fortran need not evaluate a function if the rest of an expression decides its
!   value.
! - Values that C returns through a pointer are returned in a variable, or as the function's result: a text is "" on an error,
!   and a pointer is null. Most arguments for which C accepts NULL may be left out; these are the last ones.
!
! Compile this file only. The files in the same folder, which it includes, describe how attributes, blocks and data that
! stay on servers are used in Fortran. grpc_interfaces.f90 and grpc_functions.f90 follow from the headers of C: `make capi`
! makes them. The others are written by hand.
include "grpc_interfaces.f90"
include "grpc_texts.f90"
include "grpc_errors.f90"
include "grpc_stacks.f90"
include "grpc_remotes.f90"
include "grpc_functions.f90"
include "grpc_ninfg.f90"
include "grpc_blocks.f90"
include "grpc_data.f90"

! The whole interface.
module grpc
    use grpc_types
    use grpc_errors
    use grpc_stacks
    use grpc_remotes
    use grpc_functions
    use grpc_ninfg
    use grpc_blocks
    use grpc_data
    implicit none
    public
    ! Procedures for the modules only.
    private :: refuse, code_of, take, as_c, destruct, pointer_of, GRPC_END_LIST
end module grpc
