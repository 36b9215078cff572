! Attributes of handles and of sessions, and calls with them: these parts of grpc_ninfg.h for Fortran.
!
!   type(grpc_handle_attr_t_np) :: made_with
!   type(grpc_session_attr_t_np) :: called_with
!   error = grpc_handle_attr_initialize_np(made_with)
!   error = grpc_handle_attr_set_np(made_with, GRPC_HANDLE_ATTR_FUNCNAME, "docs/dot")
!   error = grpc_function_handle_init_with_attr_np(dot, made_with)
!   error = grpc_handle_attr_destruct_np(made_with)
!   error = grpc_session_attr_initialize_np(dot, called_with)
!   called_with%gsa_timeout = 30
!   error = grpc_call_with_attr_np(dot, called_with, n, x, y, sum)
!
! - grpc_handle_attr_get_np and grpc_session_attr_get_np return values, not copies that must be released.
! - A value has the type of its attribute, a string or an integer(c_int). Another type is GRPC_OTHER_ERROR_CODE.
! - The strings in a handle's attributes belong to the library: do not use copies of the attributes after one was
!   destructed.
module grpc_attributes
    use, intrinsic :: iso_c_binding
    use grpc_texts
    use grpc_errors
    use grpc_stacks
    use grpc_calls
    use grpc_objects
    implicit none
    private

    ! When grpc_call_async returns.
    integer(c_int), parameter, public :: GRPC_ARGUMENT_TRANSFER_WAIT = 1
    integer(c_int), parameter, public :: GRPC_ARGUMENT_TRANSFER_NOWAIT = 2
    integer(c_int), parameter, public :: GRPC_ARGUMENT_TRANSFER_COPY = 3

    ! Attributes of handles.
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_HOSTNAME = 0
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_PORT = 1
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_JOBMANAGER = 2
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_SUBJECT = 3
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_FUNCNAME = 4
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT = 5
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_JOBSTOPTIMEOUT = 6
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER = 7
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_QUEUENAME = 8
    integer(c_int), parameter, public :: GRPC_HANDLE_ATTR_MPI_NCPUS = 9

    ! Attributes of sessions.
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_WAIT_ARG_TRANSFER = 0
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_SESSION_TIMEOUT = 1
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_ARGUMENT = 2
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_RESULT = 3
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_ARGUMENT = 4
    integer(c_int), parameter, public :: GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_RESULT = 5

    ! As in grpc_ninfg.h.
    type, bind(c), public :: grpc_handle_attr_t_np
        private
        type(c_ptr) :: host = c_null_ptr
        integer(c_int) :: port = 0
        type(c_ptr) :: job_manager = c_null_ptr, subject = c_null_ptr, function_name = c_null_ptr
        integer(c_int) :: start_timeout = 0, stop_timeout = 0, transfer = GRPC_ARGUMENT_TRANSFER_WAIT
        type(c_ptr) :: queue = c_null_ptr
        integer(c_int) :: ranks = 0
    end type

    ! The same. Times are in seconds; 0 is none.
    type, bind(c), public :: grpc_session_attr_t_np
        integer(c_int) :: gsa_waitArgTransfer = GRPC_ARGUMENT_TRANSFER_WAIT
        integer(c_int) :: gsa_timeout = 0
        integer(c_int) :: gsa_transferTimeout_argument = 0
        integer(c_int) :: gsa_transferTimeout_result = 0
        integer(c_int) :: gsa_transferTimeout_cbArgument = 0
        integer(c_int) :: gsa_transferTimeout_cbResult = 0
    end type

    public :: grpc_handle_attr_initialize_np, grpc_handle_attr_destruct_np
    public :: grpc_handle_attr_set_np, grpc_handle_attr_get_np
    public :: grpc_function_handle_init_with_attr_np, grpc_function_handle_array_init_with_attr_np
    public :: grpc_object_handle_init_with_attr_np, grpc_object_handle_array_init_with_attr_np
    public :: grpc_function_handle_get_attr_np, grpc_object_handle_get_attr_np
    public :: grpc_session_attr_initialize_np, grpc_session_attr_initialize_with_object_handle_np
    public :: grpc_session_attr_destruct_np, grpc_session_attr_set_np, grpc_session_attr_get_np
    public :: grpc_call_with_attr_np, grpc_call_async_with_attr_np
    public :: grpc_call_arg_stack_with_attr_np, grpc_call_arg_stack_async_with_attr_np
    public :: grpc_invoke_with_attr_np, grpc_invoke_async_with_attr_np
    public :: grpc_invoke_arg_stack_with_attr_np, grpc_invoke_arg_stack_async_with_attr_np

    interface grpc_handle_attr_set_np
        procedure :: set_text, set_number
    end interface

    ! A string that is not set is "".
    interface grpc_handle_attr_get_np
        procedure :: get_text, get_number
    end interface

    ! Functions of C that are used unchanged.
    interface
        integer(c_int) function grpc_handle_attr_initialize_np(attr) bind(c)
            import
            type(grpc_handle_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_handle_attr_destruct_np(attr) bind(c)
            import
            type(grpc_handle_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_function_handle_init_with_attr_np(handle, attr) bind(c)
            import
            type(grpc_function_handle_t), intent(inout) :: handle
            type(grpc_handle_attr_t_np), intent(in) :: attr
        end function
        integer(c_int) function grpc_function_handle_get_attr_np(handle, attr) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(grpc_handle_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_object_handle_init_with_attr_np(handle, attr) bind(c)
            import
            type(grpc_object_handle_t_np), intent(inout) :: handle
            type(grpc_handle_attr_t_np), intent(in) :: attr
        end function
        integer(c_int) function grpc_object_handle_get_attr_np(handle, attr) bind(c)
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            type(grpc_handle_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_session_attr_initialize_np(handle, attr) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(grpc_session_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_session_attr_initialize_with_object_handle_np(handle, attr) bind(c)
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            type(grpc_session_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_session_attr_destruct_np(attr) bind(c)
            import
            type(grpc_session_attr_t_np), intent(inout) :: attr
        end function
        integer(c_int) function grpc_session_attr_set_np(attr, name, value) bind(c)
            import
            type(grpc_session_attr_t_np), intent(inout) :: attr
            integer(c_int), value :: name
            integer(c_int), intent(in) :: value
        end function
    end interface

    ! Functions that get another form below.
    interface
        integer(c_int) function c_set(attr, name, value) bind(c, name="grpc_handle_attr_set_np")
            import
            type(grpc_handle_attr_t_np), intent(inout) :: attr
            integer(c_int), value :: name
            type(c_ptr), value :: value
        end function
        integer(c_int) function c_get(attr, name, value) bind(c, name="grpc_handle_attr_get_np")
            import
            type(grpc_handle_attr_t_np), intent(in) :: attr
            integer(c_int), value :: name
            type(c_ptr), intent(inout) :: value
        end function
        integer(c_int) function c_session_get(attr, name, value) bind(c, name="grpc_session_attr_get_np")
            import
            type(grpc_session_attr_t_np), intent(in) :: attr
            integer(c_int), value :: name
            type(c_ptr), intent(inout) :: value
        end function
        integer(c_int) function c_release(value) bind(c, name="grpc_handle_attr_release_np")
            import
            type(c_ptr), value :: value
        end function
        integer(c_int) function c_functions(handles, count, attr) &
            bind(c, name="grpc_function_handle_array_init_with_attr_np")
            import
            type(grpc_function_handle_t), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            type(grpc_handle_attr_t_np), intent(in) :: attr
        end function
        integer(c_int) function c_objects(handles, count, attr) &
            bind(c, name="grpc_object_handle_array_init_with_attr_np")
            import
            type(grpc_object_handle_t_np), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            type(grpc_handle_attr_t_np), intent(in) :: attr
        end function
        integer(c_int) function c_call(handle, attr, stack) bind(c, name="grpc_call_arg_stack_with_attr_np")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(grpc_session_attr_t_np), intent(in) :: attr
            type(c_ptr), value :: stack
        end function
        integer(c_int) function c_call_async(handle, attr, stack) bind(c, name="grpc_call_arg_stack_async_with_attr_np")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(grpc_session_attr_t_np), intent(in) :: attr
            type(c_ptr), value :: stack
        end function
        integer(c_int) function c_invoke(handle, method_name, attr, stack) &
            bind(c, name="grpc_invoke_arg_stack_with_attr_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            character(kind=c_char), intent(in) :: method_name(*)
            type(grpc_session_attr_t_np), intent(in) :: attr
            type(c_ptr), value :: stack
        end function
        integer(c_int) function c_invoke_async(handle, method_name, attr, stack) &
            bind(c, name="grpc_invoke_arg_stack_async_with_attr_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            character(kind=c_char), intent(in) :: method_name(*)
            type(grpc_session_attr_t_np), intent(in) :: attr
            type(c_ptr), value :: stack
        end function
    end interface

contains

    ! ---- Attributes of handles

    integer(c_int) function set_text(attr, name, value)
        type(grpc_handle_attr_t_np), intent(inout) :: attr
        integer(c_int), intent(in) :: name
        character(len=*), intent(in) :: value
        character(kind=c_char, len=:), allocatable, target :: text
        set_text = GRPC_OTHER_ERROR_CODE
        if (is_of_another_type(name, is_text=.true.)) return
        text = c_text(value)
        set_text = c_set(attr, name, c_loc(text))
    end function

    integer(c_int) function set_number(attr, name, value)
        type(grpc_handle_attr_t_np), intent(inout) :: attr
        integer(c_int), intent(in) :: name
        integer(c_int), intent(in), target :: value
        set_number = GRPC_OTHER_ERROR_CODE
        if (is_of_another_type(name, is_text=.false.)) return
        set_number = c_set(attr, name, c_loc(value))
    end function

    integer(c_int) function get_text(attr, name, value)
        type(grpc_handle_attr_t_np), intent(in) :: attr
        integer(c_int), intent(in) :: name
        character(len=:), allocatable, intent(out) :: value
        type(c_ptr) :: copy
        value = ""
        get_text = GRPC_OTHER_ERROR_CODE
        if (is_of_another_type(name, is_text=.true.)) return
        copy = c_null_ptr
        get_text = c_get(attr, name, copy)
        value = taken_text(copy)
    end function

    integer(c_int) function get_number(attr, name, value)
        type(grpc_handle_attr_t_np), intent(in) :: attr
        integer(c_int), intent(in) :: name
        integer(c_int), intent(out) :: value
        type(c_ptr) :: copy
        value = 0
        get_number = GRPC_OTHER_ERROR_CODE
        if (is_of_another_type(name, is_text=.false.)) return
        copy = c_null_ptr
        get_number = c_get(attr, name, copy)
        if (get_number == GRPC_NO_ERROR) value = taken_number(copy)
    end function

    ! Whether an attribute of handles has another type than the value; this is recorded as an error. The library
    ! reports attributes that do not exist.
    logical function is_of_another_type(name, is_text)
        integer(c_int), intent(in) :: name
        logical, intent(in) :: is_text
        character(len=12) :: number
        logical :: has_text
        select case (name)
        case (GRPC_HANDLE_ATTR_HOSTNAME, GRPC_HANDLE_ATTR_JOBMANAGER, GRPC_HANDLE_ATTR_SUBJECT, &
            GRPC_HANDLE_ATTR_FUNCNAME, GRPC_HANDLE_ATTR_QUEUENAME)
            has_text = .true.
        case (GRPC_HANDLE_ATTR_PORT, GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT, GRPC_HANDLE_ATTR_JOBSTOPTIMEOUT, &
            GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER, GRPC_HANDLE_ATTR_MPI_NCPUS)
            has_text = .false.
        case default
            has_text = is_text
        end select
        is_of_another_type = has_text .neqv. is_text
        if (.not. is_of_another_type) return
        write (number, '(i0)') name
        call refuse("attribute " // trim(number) // merge(" is a text, no number", " is a number, no text", has_text))
    end function

    integer(c_int) function taken_number(copy)
        type(c_ptr), intent(in) :: copy
        integer(c_int), pointer :: number
        call c_f_pointer(copy, number)
        taken_number = number
        if (c_release(copy) /= GRPC_NO_ERROR) error stop "grpc: a copy that was given is none"
    end function

    integer(c_int) function grpc_function_handle_array_init_with_attr_np(handles, attr)
        type(grpc_function_handle_t), intent(inout), contiguous :: handles(:)
        type(grpc_handle_attr_t_np), intent(in) :: attr
        grpc_function_handle_array_init_with_attr_np = c_functions(handles, size(handles, kind=c_size_t), attr)
    end function

    integer(c_int) function grpc_object_handle_array_init_with_attr_np(handles, attr)
        type(grpc_object_handle_t_np), intent(inout), contiguous :: handles(:)
        type(grpc_handle_attr_t_np), intent(in) :: attr
        grpc_object_handle_array_init_with_attr_np = c_objects(handles, size(handles, kind=c_size_t), attr)
    end function

    ! ---- Attributes of sessions

    integer(c_int) function grpc_session_attr_get_np(attr, name, value)
        type(grpc_session_attr_t_np), intent(in) :: attr
        integer(c_int), intent(in) :: name
        integer(c_int), intent(out) :: value
        type(c_ptr) :: copy
        value = 0
        copy = c_null_ptr
        grpc_session_attr_get_np = c_session_get(attr, name, copy)
        if (grpc_session_attr_get_np == GRPC_NO_ERROR) value = taken_number(copy)
    end function

    ! ---- Calls

    ! The same as grpc_call, with these attributes.
    integer(c_int) function grpc_call_with_attr_np(handle, attr, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_arguments.f90"
        grpc_call_with_attr_np = grpc_call_arg_stack_with_attr_np(handle, attr, all)
    end function

    ! The same without waiting.
    integer(c_int) function grpc_call_async_with_attr_np(handle, session_id, attr, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_session_attr_t_np), intent(in) :: attr
        integer(c_int), intent(out) :: session_id
        include "grpc_arguments.f90"
        session_id = grpc_call_arg_stack_async_with_attr_np(handle, attr, all)
        grpc_call_async_with_attr_np = code_of(session_id)
    end function

    ! Calls with the arguments of a stack. Returns a code.
    integer(c_int) function grpc_call_arg_stack_with_attr_np(handle, attr, stack) result(given)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_call(handle, attr, passed)
        given = code_of(given)
        call destruct(passed)
    end function

    ! The same without waiting. Returns the session id, or GRPC_SESSIONID_VOID on an error.
    integer(c_int) function grpc_call_arg_stack_async_with_attr_np(handle, attr, stack) result(given)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_call_async(handle, attr, passed)
        call destruct(passed)
    end function

    ! The same as grpc_invoke_np, with these attributes.
    integer(c_int) function grpc_invoke_with_attr_np(handle, method_name, attr, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_arguments.f90"
        grpc_invoke_with_attr_np = grpc_invoke_arg_stack_with_attr_np(handle, method_name, attr, all)
    end function

    ! The same without waiting.
    integer(c_int) function grpc_invoke_async_with_attr_np(handle, method_name, session_id, attr, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        type(grpc_session_attr_t_np), intent(in) :: attr
        integer(c_int), intent(out) :: session_id
        include "grpc_arguments.f90"
        session_id = grpc_invoke_arg_stack_async_with_attr_np(handle, method_name, attr, all)
        grpc_invoke_async_with_attr_np = code_of(session_id)
    end function

    ! Calls with the arguments of a stack. Returns a code.
    integer(c_int) function grpc_invoke_arg_stack_with_attr_np(handle, method_name, attr, stack) result(given)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_invoke(handle, c_text(method_name), attr, passed)
        given = code_of(given)
        call destruct(passed)
    end function

    ! The same without waiting. Returns the session id, or GRPC_SESSIONID_VOID on an error.
    integer(c_int) function grpc_invoke_arg_stack_async_with_attr_np(handle, method_name, attr, stack) result(given)
        type(grpc_object_handle_t_np), intent(in), target :: handle
        character(len=*), intent(in) :: method_name
        type(grpc_session_attr_t_np), intent(in) :: attr
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_invoke_async(handle, c_text(method_name), attr, passed)
        call destruct(passed)
    end function

end module grpc_attributes
