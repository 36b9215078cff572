! Whether the running call was cancelled: grpc_executable.h for remote functions in Fortran. It is compiled into their
! library, not with programs that call them.
!
!   gfortran -shared -fPIC -o libsolver.so target/capi/include/grpc_executable.f90 solver.f90
!
!   use grpc_executable
!   do while (.not. grpc_is_canceled_np())
!
! The promises of C's function of this name apply: a function that checks should return soon after it was cancelled.
module grpc_executable
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: grpc_is_canceled_np

    ! The server sets it when it loads the library.
    type(c_funptr), bind(c, name="gridloom_is_canceled_np"), target, public :: gridloom_is_canceled_np = c_null_funptr

    abstract interface
        integer(c_int) function answer() bind(c)
            import
        end function
    end interface

contains

    logical function grpc_is_canceled_np()
        procedure(answer), pointer :: is_canceled
        grpc_is_canceled_np = .false.
        if (.not. c_associated(gridloom_is_canceled_np)) return
        call c_f_procpointer(gridloom_is_canceled_np, is_canceled)
        grpc_is_canceled_np = is_canceled() /= 0
    end function

end module grpc_executable
