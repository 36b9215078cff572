! Heuristics defined by the program: grpc_heuristic.h for Fortran.
!
!   integer(c_int) function in_turn(problem, servers, order, context) bind(c)
!       type(grpc_problem_np), intent(in) :: problem
!       integer(c_int), intent(inout) :: servers(*), order(*)
!       type(c_ptr), value :: context
!       integer :: i
!       do i = 1, int(problem%calls_count)
!           servers(i) = modulo(i - 1, int(problem%servers_count))
!       end do
!       in_turn = 0
!   end function
!   ...
!   error = grpc_heuristic_define_np("in-turn", in_turn)
!   call grpc_map(block, "in-turn")
!
! Servers, calls and data are numbered from 0, as in C: servers(i) is the server of call i - 1. The arrays of a
! problem are accessed with c_f_pointer, as in `call c_f_pointer(problem%calls, calls, [problem%calls_count])`. The
! function must not have variables that other threads change: it runs on a thread of its own.
module grpc_heuristics
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private
    public :: grpc_heuristic_define_np, grpc_problem_link_seconds_np, grpc_heuristic_np

    ! As in grpc_heuristic.h.
    type, bind(c), public :: grpc_problem_call_np
        type(c_ptr) :: function
        real(c_double) :: work_flops
        integer(c_size_t) :: inputs_count
        type(c_ptr) :: inputs
        integer(c_size_t) :: outputs_count
        type(c_ptr) :: outputs
        type(c_ptr) :: seconds
    end type

    type, bind(c), public :: grpc_problem_server_np
        type(c_ptr) :: name
        integer(c_int64_t) :: memory_bytes
        integer(c_size_t) :: slots
        type(c_ptr) :: busy_seconds
    end type

    type, bind(c), public :: grpc_problem_datum_np
        integer(c_int64_t) :: size_bytes
        integer(c_int) :: producer, readers, is_wanted
        integer(c_size_t) :: holders_count
        type(c_ptr) :: holders
    end type

    type, bind(c), public :: grpc_problem_np
        integer(c_size_t) :: calls_count
        type(c_ptr) :: calls
        integer(c_size_t) :: servers_count
        type(c_ptr) :: servers
        integer(c_size_t) :: data_count
        type(c_ptr) :: data
        type(c_ptr) :: links_np
    end type

    abstract interface
        integer(c_int) function grpc_heuristic_np(problem, servers, order, context) bind(c)
            import
            type(grpc_problem_np), intent(in) :: problem
            integer(c_int), intent(inout) :: servers(*), order(*)
            type(c_ptr), value :: context
        end function
    end interface

    interface
        ! Places are numbers of servers, or servers_count for the client.
        real(c_double) function grpc_problem_link_seconds_np(problem, from, to, size_bytes) bind(c)
            import
            type(grpc_problem_np), intent(in) :: problem
            integer(c_int), value :: from, to
            integer(c_int64_t), value :: size_bytes
        end function
        integer(c_int) function c_define(name, heuristic, context, limit_s) bind(c, name="grpc_heuristic_define_np")
            import
            character(kind=c_char), intent(in) :: name(*)
            type(c_funptr), value :: heuristic
            type(c_ptr), value :: context
            real(c_double), value :: limit_s
        end function
    end interface

contains

    ! Defines a heuristic with a name, for grpc_map; without a function the name is removed.
    integer(c_int) function grpc_heuristic_define_np(name, heuristic, context, limit_s)
        character(len=*), intent(in) :: name
        procedure(grpc_heuristic_np), optional :: heuristic
        type(c_ptr), intent(in), optional :: context
        real(c_double), intent(in), optional :: limit_s
        type(c_funptr) :: address
        type(c_ptr) :: passed
        real(c_double) :: limit
        address = c_null_funptr
        passed = c_null_ptr
        limit = 0
        if (present(heuristic)) address = c_funloc(heuristic)
        if (present(context)) passed = context
        if (present(limit_s)) limit = limit_s
        grpc_heuristic_define_np = c_define(c_text(name), address, passed, limit)
    end function

end module grpc_heuristics
