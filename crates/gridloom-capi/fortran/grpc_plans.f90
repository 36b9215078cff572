! Plans of blocks: grpc_plan.h for Fortran.
!
!   call grpc_plan(block, "heft")
!   do while (grpc_map_next_np(block))
!       call step()
!   end do
!   error = grpc_plan_save_np("step.json")
!   ...
!   call grpc_map(block, "file:step.json")
!
! Calls of a plan are numbered from 0, as in its text.
module grpc_plans
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private
    public :: grpc_plan_get_np, grpc_plan_save_np, grpc_plan_define_np, grpc_plan_move_np, grpc_plan_server_np
    public :: grpc_plan_predicted_np

    interface
        integer(c_int) function c_get(plan) bind(c, name="grpc_plan_get_np")
            import
            type(c_ptr), intent(inout) :: plan
        end function
        integer(c_int) function c_save(file_name) bind(c, name="grpc_plan_save_np")
            import
            character(kind=c_char), intent(in) :: file_name(*)
        end function
        integer(c_int) function c_define(name, plan) bind(c, name="grpc_plan_define_np")
            import
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), value :: plan
        end function
        integer(c_int) function c_move(plan, call, server_name, moved) bind(c, name="grpc_plan_move_np")
            import
            character(kind=c_char), intent(in) :: plan(*), server_name(*)
            integer(c_size_t), value :: call
            type(c_ptr), intent(inout) :: moved
        end function
        integer(c_int) function c_server(plan, call, text, size) bind(c, name="grpc_plan_server_np")
            import
            character(kind=c_char), intent(in) :: plan(*)
            integer(c_size_t), value :: call, size
            character(kind=c_char), intent(inout) :: text(*)
        end function
        integer(c_int) function c_predicted(plan, seconds, calls) bind(c, name="grpc_plan_predicted_np")
            import
            character(kind=c_char), intent(in) :: plan(*)
            real(c_double), intent(inout) :: seconds
            integer(c_size_t), intent(inout) :: calls
        end function
    end interface

contains

    ! Returns the plan of the last block, as text; "" on an error.
    integer(c_int) function grpc_plan_get_np(plan)
        character(len=:), allocatable, intent(out) :: plan
        type(c_ptr) :: given
        given = c_null_ptr
        grpc_plan_get_np = c_get(given)
        plan = taken_text(given)
    end function

    integer(c_int) function grpc_plan_save_np(file_name)
        character(len=*), intent(in) :: file_name
        grpc_plan_save_np = c_save(c_text(file_name))
    end function

    ! Defines a plan with a name, for grpc_map; without a plan the name is removed.
    integer(c_int) function grpc_plan_define_np(name, plan)
        character(len=*), intent(in) :: name
        character(len=*), intent(in), optional :: plan
        character(kind=c_char, len=:), allocatable, target :: text
        if (present(plan)) then
            text = c_text(plan)
            grpc_plan_define_np = c_define(c_text(name), c_loc(text))
        else
            grpc_plan_define_np = c_define(c_text(name), c_null_ptr)
        end if
    end function

    ! Returns another plan, with a call on another server; "" on an error.
    integer(c_int) function grpc_plan_move_np(plan, number, server_name, moved)
        character(len=*), intent(in) :: plan, server_name
        integer, intent(in) :: number
        character(len=:), allocatable, intent(out) :: moved
        type(c_ptr) :: given
        given = c_null_ptr
        grpc_plan_move_np = c_move(c_text(plan), int(number, c_size_t), c_text(server_name), given)
        moved = taken_text(given)
    end function

    ! Returns the server of a call in a plan; "" if there is no such call.
    function grpc_plan_server_np(plan, number) result(name)
        character(len=*), intent(in) :: plan
        integer, intent(in) :: number
        character(len=:), allocatable :: name
        character(kind=c_char), target :: letters(256)
        letters = c_null_char
        name = ""
        if (c_server(c_text(plan), int(number, c_size_t), letters, size(letters, kind=c_size_t)) < 0) return
        name = fortran_text(c_loc(letters))
    end function

    ! Returns the predicted time of a plan, in seconds, and its number of calls.
    integer(c_int) function grpc_plan_predicted_np(plan, seconds, calls)
        character(len=*), intent(in) :: plan
        real(c_double), intent(out) :: seconds
        integer, intent(out) :: calls
        integer(c_size_t) :: counted
        seconds = 0
        counted = 0
        grpc_plan_predicted_np = c_predicted(c_text(plan), seconds, counted)
        calls = int(counted)
    end function

end module grpc_plans
