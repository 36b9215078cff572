! Declared graphs as texts and files: grpc_graph.h for Fortran. Blocks that describe and follow them are in
! grpc_blocks.f90:
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
module grpc_graphs
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private
    public :: grpc_graph_get_np, grpc_graph_save_np, grpc_graph_define_np, grpc_graph_plan_np

    interface
        integer(c_int) function c_get(name, graph) bind(c, name="grpc_graph_get_np")
            import
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), intent(inout) :: graph
        end function
        integer(c_int) function c_save(name, file_name) bind(c, name="grpc_graph_save_np")
            import
            character(kind=c_char), intent(in) :: name(*), file_name(*)
        end function
        integer(c_int) function c_define(name, graph) bind(c, name="grpc_graph_define_np")
            import
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), value :: graph
        end function
        integer(c_int) function c_plan(name, heuristic, plan) bind(c, name="grpc_graph_plan_np")
            import
            character(kind=c_char), intent(in) :: name(*), heuristic(*)
            type(c_ptr), intent(inout) :: plan
        end function
    end interface

contains

    ! Returns a declared graph as text; "" on an error.
    integer(c_int) function grpc_graph_get_np(name, graph)
        character(len=*), intent(in) :: name
        character(len=:), allocatable, intent(out) :: graph
        type(c_ptr) :: given
        given = c_null_ptr
        grpc_graph_get_np = c_get(c_text(name), given)
        graph = taken_text(given)
    end function

    integer(c_int) function grpc_graph_save_np(name, file_name)
        character(len=*), intent(in) :: name, file_name
        grpc_graph_save_np = c_save(c_text(name), c_text(file_name))
    end function

    ! Defines a declared graph from its text; without a text the name is removed.
    integer(c_int) function grpc_graph_define_np(name, graph)
        character(len=*), intent(in) :: name
        character(len=*), intent(in), optional :: graph
        character(kind=c_char, len=:), allocatable, target :: text
        if (present(graph)) then
            text = c_text(graph)
            grpc_graph_define_np = c_define(c_text(name), c_loc(text))
        else
            grpc_graph_define_np = c_define(c_text(name), c_null_ptr)
        end if
    end function

    ! Returns the plan of a declared graph, as text; "" on an error.
    integer(c_int) function grpc_graph_plan_np(name, heuristic, plan)
        character(len=*), intent(in) :: name, heuristic
        character(len=:), allocatable, intent(out) :: plan
        type(c_ptr) :: given
        given = c_null_ptr
        grpc_graph_plan_np = c_plan(c_text(name), c_text(heuristic), given)
        plan = taken_text(given)
    end function

end module grpc_graphs
