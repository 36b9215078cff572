! Objects of classes: grpc_objects.h for Fortran.
!
!   type(grpc_object_handle_t_np) :: counter
!   error = grpc_object_handle_default_np(counter, "docs/counter")
!   error = grpc_invoke_np(counter, "add", 5_c_int, sum)
!   error = grpc_object_handle_destruct_np(counter)
!
! - Arguments of methods have the kinds of the class's description, like those of grpc_call: here add(IN int n, OUT
!   long *sum), so that sum is an integer(c_long). An array of handles represents as many objects.
module grpc_objects
    use, intrinsic :: iso_c_binding
    use grpc_texts
    use grpc_errors
    use grpc_stacks
    use grpc_calls
    implicit none
    private

    ! As in grpc_objects.h: copies refer to the same handle. It is invalid until it is made.
    type, bind(c), public :: grpc_object_handle_t_np
        private
        integer(c_int64_t) :: mark_np = 0, number_np = 0
    end type

    public :: grpc_object_handle_default_np, grpc_object_handle_init_np, grpc_object_handle_destruct_np
    public :: grpc_object_handle_array_default_np, grpc_object_handle_array_init_np
    public :: grpc_object_handle_array_destruct_np, grpc_get_object_handle_np
    public :: grpc_invoke_np, grpc_invoke_async_np, grpc_invoke_arg_stack_np, grpc_invoke_arg_stack_async_np

    ! Functions of C that are used unchanged.
    interface
        integer(c_int) function grpc_object_handle_destruct_np(handle) bind(c)
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
        end function
    end interface

    ! Functions that get another form below.
    interface
        integer(c_int) function c_object_default(handle, class_name) bind(c, name="grpc_object_handle_default_np")
            import
            type(grpc_object_handle_t_np), intent(inout) :: handle
            character(kind=c_char), intent(in) :: class_name(*)
        end function
        integer(c_int) function c_object_init(handle, server_name, class_name) bind(c, name="grpc_object_handle_init_np")
            import
            type(grpc_object_handle_t_np), intent(inout) :: handle
            character(kind=c_char), intent(in) :: server_name(*), class_name(*)
        end function
        integer(c_int) function c_objects_default(handles, count, class_name) &
            bind(c, name="grpc_object_handle_array_default_np")
            import
            type(grpc_object_handle_t_np), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            character(kind=c_char), intent(in) :: class_name(*)
        end function
        integer(c_int) function c_objects_init(handles, count, server_name, class_name) &
            bind(c, name="grpc_object_handle_array_init_np")
            import
            type(grpc_object_handle_t_np), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            character(kind=c_char), intent(in) :: server_name(*), class_name(*)
        end function
        integer(c_int) function c_objects_destruct(handles, count) bind(c, name="grpc_object_handle_array_destruct_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handles(*)
            integer(c_size_t), value :: count
        end function
        integer(c_int) function c_get_object(handle, session_id) bind(c, name="grpc_get_object_handle_np")
            import
            type(c_ptr), intent(inout) :: handle
            integer(c_int), value :: session_id
        end function
        integer(c_int) function c_invoke_stack(handle, method_name, stack) bind(c, name="grpc_invoke_arg_stack_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            character(kind=c_char), intent(in) :: method_name(*)
            type(c_ptr), value :: stack
        end function
        integer(c_int) function c_invoke_stack_async(handle, method_name, stack) &
            bind(c, name="grpc_invoke_arg_stack_async_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            character(kind=c_char), intent(in) :: method_name(*)
            type(c_ptr), value :: stack
        end function
    end interface

contains

    ! ---- Handles

    integer(c_int) function grpc_object_handle_default_np(handle, class_name)
        type(grpc_object_handle_t_np), intent(inout) :: handle
        character(len=*), intent(in) :: class_name
        grpc_object_handle_default_np = c_object_default(handle, c_text(class_name))
    end function

    integer(c_int) function grpc_object_handle_init_np(handle, server_name, class_name)
        type(grpc_object_handle_t_np), intent(inout) :: handle
        character(len=*), intent(in) :: server_name, class_name
        grpc_object_handle_init_np = c_object_init(handle, c_text(server_name), c_text(class_name))
    end function

    integer(c_int) function grpc_object_handle_array_default_np(handles, class_name)
        type(grpc_object_handle_t_np), intent(inout), contiguous :: handles(:)
        character(len=*), intent(in) :: class_name
        grpc_object_handle_array_default_np = c_objects_default(handles, size(handles, kind=c_size_t), c_text(class_name))
    end function

    integer(c_int) function grpc_object_handle_array_init_np(handles, server_name, class_name)
        type(grpc_object_handle_t_np), intent(inout), contiguous :: handles(:)
        character(len=*), intent(in) :: server_name, class_name
        grpc_object_handle_array_init_np = &
            c_objects_init(handles, size(handles, kind=c_size_t), c_text(server_name), c_text(class_name))
    end function

    integer(c_int) function grpc_object_handle_array_destruct_np(handles)
        type(grpc_object_handle_t_np), intent(in), contiguous :: handles(:)
        grpc_object_handle_array_destruct_np = c_objects_destruct(handles, size(handles, kind=c_size_t))
    end function

    ! Returns the handle that was passed to the call, which has the TARGET attribute there; null on an error.
    integer(c_int) function grpc_get_object_handle_np(handle, session_id)
        type(grpc_object_handle_t_np), pointer, intent(out) :: handle
        integer(c_int), intent(in) :: session_id
        type(c_ptr) :: found
        found = c_null_ptr
        nullify(handle)
        grpc_get_object_handle_np = c_get_object(found, session_id)
        if (c_associated(found)) call c_f_pointer(found, handle)
    end function

    ! ---- Methods

    ! The arguments follow in the order of the method's signature.
    integer(c_int) function grpc_invoke_np(handle, method_name, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        include "grpc_arguments.f90"
        grpc_invoke_np = grpc_invoke_arg_stack_np(handle, method_name, all)
    end function

    ! The same without waiting, like grpc_call_async.
    integer(c_int) function grpc_invoke_async_np(handle, method_name, session_id, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        integer(c_int), intent(out) :: session_id
        include "grpc_arguments.f90"
        session_id = grpc_invoke_arg_stack_async_np(handle, method_name, all)
        grpc_invoke_async_np = code_of(session_id)
    end function

    ! Calls with the arguments of a stack. Returns a code.
    integer(c_int) function grpc_invoke_arg_stack_np(handle, method_name, stack) result(given)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_invoke_stack(handle, c_text(method_name), passed)
        given = code_of(given)
        call destruct(passed)
    end function

    ! The same without waiting. Returns the session id, or GRPC_SESSIONID_VOID on an error.
    integer(c_int) function grpc_invoke_arg_stack_async_np(handle, method_name, stack) result(given)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_invoke_stack_async(handle, c_text(method_name), passed)
        call destruct(passed)
    end function

end module grpc_objects
