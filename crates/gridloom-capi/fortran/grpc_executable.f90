! Whether the call that runs was cancelled: grpc_executable.h for remote functions in Fortran. It is compiled into their library, not
! with programs that call.
!
!   gfortran -shared -fPIC -o libsolver.so target/capi/include/grpc_executable.f90 solver.f90
!
!   use grpc_executable
!   do while (.not. grpc_is_canceled_np())
!
! What C's function of this name promises holds here: a function that asks is to return soon once it is told.
module grpc_executable
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: grpc_is_canceled_np

    ! The server sets it when it loads the library.
    type(c_funptr), bind(c, name="gridloom_asks_np"), target, public :: gridloom_asks_np = c_null_funptr

    abstract interface
        integer(c_int) function answer() bind(c)
            import
        end function
    end interface

contains

    logical function grpc_is_canceled_np()
        procedure(answer), pointer :: asks
        grpc_is_canceled_np = .false.
        if (.not. c_associated(gridloom_asks_np)) return
        call c_f_procpointer(gridloom_asks_np, asks)
        grpc_is_canceled_np = asks() /= 0
    end function

end module grpc_executable
