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
module grpc_blocks
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private

    ! The form that the library uses.
    type, bind(c) :: c_mapped
        integer(c_int64_t) :: number = 0
        integer(c_int) :: phase = 0
    end type

    ! A block; one at a time.
    type, public :: grpc_mapped_np
        private
        type(c_mapped) :: of_c
    contains
        final :: end_of_block
    end type

    public :: grpc_describe, grpc_describe_optional_np, grpc_follow
    public :: grpc_map, grpc_plan, grpc_map_next_np, grpc_local, grpc_local_reads, grpc_local_writes, grpc_stays_remote
    public :: grpc_fetch, grpc_forget_np, grpc_map_error_np, grpc_map_again_np, grpc_map_phase_np
    public :: grpc_map_report_np

    interface
        subroutine c_begin(mapped, heuristic, file, line) bind(c, name="grpc_map_begin_np")
            import
            type(c_mapped), intent(inout) :: mapped
            type(c_ptr), value :: heuristic, file
            integer(c_int), value :: line
        end subroutine
        subroutine c_begin_plan(mapped, heuristic, file, line) bind(c, name="grpc_plan_begin_np")
            import
            type(c_mapped), intent(inout) :: mapped
            type(c_ptr), value :: heuristic, file
            integer(c_int), value :: line
        end subroutine
        subroutine c_begin_describing(mapped, name, file, line) bind(c, name="grpc_describe_begin_np")
            import
            type(c_mapped), intent(inout) :: mapped
            type(c_ptr), value :: name, file
            integer(c_int), value :: line
        end subroutine
        subroutine c_begin_following(mapped, name, heuristic, file, line) bind(c, name="grpc_follow_begin_np")
            import
            type(c_mapped), intent(inout) :: mapped
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), value :: heuristic, file
            integer(c_int), value :: line
        end subroutine
        integer(c_int) function c_describe_optional(is_optional) bind(c, name="grpc_describe_optional_np")
            import
            integer(c_int), value :: is_optional
        end function
        integer(c_int) function c_next(mapped) bind(c, name="grpc_map_next_np")
            import
            type(c_mapped), intent(inout) :: mapped
        end function
        integer(c_int) function c_leave(mapped, how) bind(c, name="grpc_map_leave_np")
            import
            type(c_mapped), intent(inout) :: mapped
            integer(c_int), value :: how
        end function
        integer(c_int) function c_local() bind(c, name="grpc_local_np")
            import
        end function
        integer(c_int) function c_fetch_all(pointers) bind(c, name="grpc_fetch_all_np")
            import
            type(c_ptr), intent(in) :: pointers(*)
        end function
        integer(c_int) function c_written(pointers) bind(c, name="grpc_written_np")
            import
            type(c_ptr), intent(in) :: pointers(*)
        end function
        integer(c_int) function c_stays_remote(pointers) bind(c, name="grpc_stays_remote_np")
            import
            type(c_ptr), intent(in) :: pointers(*)
        end function
        integer(c_int) function c_forget(pointer) bind(c, name="grpc_forget_np")
            import
            type(c_ptr), value :: pointer
        end function
        integer(c_int) function c_report(file_name) bind(c, name="grpc_map_report_np")
            import
            type(c_ptr), value :: file_name
        end function
        ! As in grpc_map.h.
        integer(c_int) function grpc_map_error_np() bind(c)
            import
        end function
        integer(c_int) function grpc_map_again_np() bind(c)
            import
        end function
        integer(c_int) function grpc_map_phase_np() bind(c)
            import
        end function
    end interface

    ! Arguments by which grpc_map_leave_np learns that a block was left: it may run again, or the program cannot
    ! return to it.
    integer(c_int), parameter :: MAY_GO_BACK = 0, CANNOT_GO_BACK = 2

contains

    ! Begins a block; without a heuristic the configuration's is used.
    subroutine grpc_map(block, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in), optional :: heuristic
        call begin(block, c_begin, heuristic)
    end subroutine

    ! The same for a block that is only planned: its loop runs once, and no call is made (grpc_plan.h).
    subroutine grpc_plan(block, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in), optional :: heuristic
        call begin(block, c_begin_plan, heuristic)
    end subroutine

    ! Describes the calls of the loop, which runs once, under a name (grpc_graph.h).
    subroutine grpc_describe(block, name)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in) :: name
        call begin(block, c_begin_describing, name)
    end subroutine

    ! Makes calls that are described from now on optional, or required.
    integer(c_int) function grpc_describe_optional_np(is_optional)
        logical, intent(in) :: is_optional
        grpc_describe_optional_np = c_describe_optional(merge(1_c_int, 0_c_int, is_optional))
    end function

    ! Maps the declared graph of that name. The loop runs once, and its calls are made in the plan.
    subroutine grpc_follow(block, name, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        character(len=*), intent(in) :: name
        character(len=*), intent(in), optional :: heuristic
        character(kind=c_char, len=:), allocatable, target :: text
        type(c_ptr) :: by
        call end_of_block(block)
        by = c_null_ptr
        if (present(heuristic)) then
            text = c_text(heuristic)
            by = c_loc(text)
        end if
        call c_begin_following(block%of_c, c_text(name), by, c_null_ptr, 0_c_int)
    end subroutine

    subroutine begin(block, begins, heuristic)
        type(grpc_mapped_np), intent(inout) :: block
        procedure(c_begin) :: begins
        character(len=*), intent(in), optional :: heuristic
        character(kind=c_char, len=:), allocatable, target :: text
        call end_of_block(block)
        if (present(heuristic)) then
            text = c_text(heuristic)
            call begins(block%of_c, c_loc(text), c_null_ptr, 0_c_int)
        else
            call begins(block%of_c, c_null_ptr, c_null_ptr, 0_c_int)
        end if
    end subroutine

    ! Whether the loop runs again.
    logical function grpc_map_next_np(block)
        type(grpc_mapped_np), intent(inout) :: block
        grpc_map_next_np = c_next(block%of_c) /= 0
    end function

    ! It was not left by its end.
    subroutine end_of_block(block)
        type(grpc_mapped_np), intent(inout) :: block
        if (c_leave(block%of_c, MAY_GO_BACK) == 0) return
        if (c_leave(block%of_c, CANNOT_GO_BACK) /= 0) error stop "grpc: a block that was left is none"
    end subroutine

    ! Whether the program's own work runs: not while calls are discovered.
    logical function grpc_local()
        grpc_local = c_local() /= 0
    end function

    ! Fetches the values of these buffers for the program's own work that follows.
    integer(c_int) function grpc_local_reads(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_local_reads = c_fetch_all(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Declares that the program's own work that follows changes these buffers.
    integer(c_int) function grpc_local_writes(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_local_writes = c_written(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Keeps results in these buffers on their servers when the block ends.
    integer(c_int) function grpc_stays_remote(b1, b2, b3, b4, b5, b6, b7, b8)
        type(*), dimension(..), target, asynchronous :: b1
        type(*), dimension(..), optional, target, asynchronous :: b2, b3, b4, b5, b6, b7, b8
        grpc_stays_remote = c_stays_remote(addresses(b1, b2, b3, b4, b5, b6, b7, b8))
    end function

    ! Fetches the current value of a buffer.
    integer(c_int) function grpc_fetch(buffer)
        type(*), dimension(..), target, asynchronous :: buffer
        grpc_fetch = c_fetch_all([c_loc(buffer), c_null_ptr])
    end function

    ! Drops results in a buffer; without one, all that stay remote.
    integer(c_int) function grpc_forget_np(buffer)
        type(*), dimension(..), optional, target, asynchronous :: buffer
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(buffer)) address = c_loc(buffer)
        grpc_forget_np = c_forget(address)
    end function

    ! Writes the cost of the last block to a file; without a name to standard error.
    integer(c_int) function grpc_map_report_np(file_name)
        character(len=*), intent(in), optional :: file_name
        character(kind=c_char, len=:), allocatable, target :: text
        if (present(file_name)) then
            text = c_text(file_name)
            grpc_map_report_np = c_report(c_loc(text))
        else
            grpc_map_report_np = c_report(c_null_ptr)
        end if
    end function

    ! Returns a list of the given ones, which ends with a null pointer.
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
