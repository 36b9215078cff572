! Blocks of calls that are mapped together: grpc_map.h for Fortran.
!
!   type(grpc_mapped_np) :: block
!   call grpc_map(block, "auto")
!   do while (grpc_map_next_np(block))
!       error = grpc_call(gravity, n, rho, phi)
!       error = grpc_call_async(dark, moving, n, phi, x, u, rho)
!       error = grpc_call(gas, n, phi, state)
!       error = grpc_wait(moving)
!       error = grpc_local_reads(rho)
!       if (grpc_local()) call print_density(n, rho)
!   end do
!   error = grpc_map_error_np()
!
! The loop runs twice, as described in grpc_map.h: first its calls are discovered, then they are made.
! - It must be left only by its end, to which cycle goes; exit, return and goto must not leave it. If they do, later
!   calls belong to it until its variable is used again or ends. Then grpc_map_error_np returns GRPC_OTHER_ERROR_CODE.
! - Arrays that its calls read or write are variables, not expressions, and have the TARGET and ASYNCHRONOUS
!   attributes: they are read and written until the loop ends. Scalars may be expressions.
! - grpc_local_reads, grpc_local_writes and grpc_stays_remote accept up to eight buffers at once.
!
! A block that is only planned, and one that runs by a plan (grpc_plan.h). Calls of a plan are numbered from 0:
!
!   call grpc_plan(block, "heft")
!   do while (grpc_map_next_np(block))
!       call step()
!   end do
!   error = grpc_plan_save_np("step.json")
!   ...
!   call grpc_map(block, "file:step.json")
!
! A declared graph (grpc_graph.h):
!
!   call grpc_describe(block, "steps")
!   do while (grpc_map_next_np(block))
!       do i = 1, 100
!           error = grpc_describe_optional_np(i > 1)
!           error = grpc_call(step, n, state)
!           error = grpc_call(norm, n, state, size)
!           error = grpc_fetch(size)
!       end do
!   end do
!   call grpc_follow(block, "steps", "auto")
!   do while (grpc_map_next_np(block))
!       do
!           error = grpc_call(step, n, state)
!           error = grpc_call(norm, n, state, size)
!           error = grpc_fetch(size)
!           if (size < 1d-6) exit
!       end do
!   end do
!
! A heuristic of the program (grpc_heuristic.h). Servers, calls and data are numbered from 0: servers(i) is the server
! of call i - 1. Arrays of a problem are accessed as in `call c_f_pointer(problem%calls, calls, [problem%calls_count])`.
! The function must not have variables that other threads change: it runs on a thread of its own.
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
module grpc_blocks
    use, intrinsic :: iso_c_binding
    use grpc_c
    use grpc_texts
    implicit none
    private

    ! A block. Only one can be open at a time.
    type, public :: grpc_mapped_np
        private
        type(c_mapped_np) :: of_c
    contains
        final :: end_of_block
    end type

    public :: grpc_map, grpc_plan, grpc_describe, grpc_follow, grpc_map_next_np
    public :: grpc_local, grpc_local_reads, grpc_local_writes, grpc_stays_remote, grpc_fetch

    ! Arguments by which grpc_map_leave_np learns that a block was left: it may run again, or the program cannot
    ! return to it.
    integer(c_int), parameter :: MAY_GO_BACK = 0, CANNOT_GO_BACK = 2

contains

    ! Begins a block. Without a heuristic, that of the configuration is used.
    subroutine grpc_map(block, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in), optional :: heuristic
        call begin(block, c_map_begin_np, heuristic)
    end subroutine

    ! The same for a block that is only planned: its loop runs once, and no call is made (grpc_plan.h).
    subroutine grpc_plan(block, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in), optional :: heuristic
        call begin(block, c_plan_begin_np, heuristic)
    end subroutine

    ! Describes the calls of the loop, which runs once, under a name (grpc_graph.h).
    subroutine grpc_describe(block, name)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in) :: name
        call begin(block, c_describe_begin_np, name)
    end subroutine

    ! Maps the declared graph of that name. The loop runs once, and its calls are made in the plan.
    subroutine grpc_follow(block, name, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in) :: name
        character(len=*), intent(in), optional :: heuristic
        character(kind=c_char, len=:), allocatable, target :: text
        call end_of_block(block)
        call c_follow_begin_np(block%of_c, c_text(name), c_optional(heuristic, text), c_null_ptr, 0_c_int)
    end subroutine

    subroutine begin(block, begins, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        procedure(c_map_begin_np) :: begins
        character(len=*), intent(in), optional :: heuristic
        character(kind=c_char, len=:), allocatable, target :: text
        call end_of_block(block)
        call begins(block%of_c, c_optional(heuristic, text), c_null_ptr, 0_c_int)
    end subroutine

    ! Returns true if the loop runs again.
    logical function grpc_map_next_np(block)
        type(grpc_mapped_np), intent(inout) :: block
        grpc_map_next_np = c_map_next_np(block%of_c) /= 0
    end function

    ! The loop was not left by its end.
    subroutine end_of_block(block)
        type(grpc_mapped_np), intent(inout) :: block
        if (c_map_leave_np(block%of_c, MAY_GO_BACK) == 0) return
        if (c_map_leave_np(block%of_c, CANNOT_GO_BACK) /= 0) error stop "grpc: a block that was left is none"
    end subroutine

    ! Returns true if the program's own work runs, which it does not while calls are discovered.
    logical function grpc_local()
        grpc_local = c_local_np() /= 0
    end function

    ! Fetches the values of these buffers for the program's own work that follows.
    integer(c_int) function grpc_local_reads(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_local_reads = c_fetch_all_np(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Declares that the program's own work that follows changes these buffers.
    integer(c_int) function grpc_local_writes(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_local_writes = c_written_np(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Keeps results in these buffers on their servers when the block ends.
    integer(c_int) function grpc_stays_remote(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_stays_remote = c_stays_remote_np(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Fetches the current value of a buffer.
    integer(c_int) function grpc_fetch(buffer)
        type(*), dimension(..), target, asynchronous :: buffer
        grpc_fetch = c_fetch_all_np([c_loc(buffer), c_null_ptr])
    end function

    ! Returns a list of the given buffers, which ends with a null pointer.
    function addresses(b1, b2, b3, b4, b5, b6, b7, b8) result(list)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        type(c_ptr) :: list(9)
        integer :: used
        list = c_null_ptr
        list(1) = c_loc(b1)
        used = 1
        call add(b2)
        call add(b3)
        call add(b4)
        call add(b5)
        call add(b6)
        call add(b7)
        call add(b8)
    contains
        subroutine add(buffer)
            type(*), dimension(..), optional, target, asynchronous :: buffer
            if (.not. present(buffer)) return
            used = used + 1
            list(used) = c_loc(buffer)
        end subroutine
    end function

end module grpc_blocks
