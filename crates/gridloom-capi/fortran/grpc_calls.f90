! Sessions of the library: grpc.h and grpc_extensions.h for Fortran.
module grpc_calls
    use, intrinsic :: iso_c_binding
    use grpc_texts
    use grpc_errors
    use grpc_stacks
    implicit none
    private

    integer(c_int), parameter, public :: GRPC_SESSIONID_VOID = -1
    ! As in grpc.h: copies refer to the same handle. It is invalid until it is made.
    type, bind(c), public :: grpc_function_handle_t
        private
        integer(c_int64_t) :: mark_np = 0, number_np = 0
    end type

    ! As in grpc_extensions.h.
    type, bind(c), public :: grpc_session_details_np
        integer(c_int) :: error = GRPC_NO_ERROR
        integer(c_int) :: is_done = 0
        character(kind=c_char) :: server(256) = c_null_char
        real(c_double) :: transfer_s = -1, queue_s = -1, run_s = -1, total_s = -1
    end type

    public :: grpc_initialize, grpc_finalize
    public :: grpc_function_handle_default, grpc_function_handle_init, grpc_function_handle_destruct, grpc_get_handle
    public :: grpc_call, grpc_call_async, grpc_call_arg_stack, grpc_call_arg_stack_async
    public :: grpc_probe, grpc_probe_or, grpc_cancel, grpc_cancel_all
    public :: grpc_wait, grpc_wait_and, grpc_wait_or, grpc_wait_all, grpc_wait_any
    public :: grpc_get_failed_sessionid, grpc_get_error, grpc_session_error_text_np
    public :: grpc_session_details_get_np, grpc_session_info_remove_np
    public :: grpc_function_handle_set_timeout_np, grpc_function_handle_signature_np, grpc_function_handle_prototype_np
    public :: grpc_function_handle_array_default_np, grpc_function_handle_array_init_np
    public :: grpc_function_handle_array_destruct_np

    ! Functions of C that are used unchanged.
    interface
        integer(c_int) function grpc_finalize() bind(c)
            import
        end function
        integer(c_int) function grpc_function_handle_destruct(handle) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
        end function
        integer(c_int) function grpc_probe(session_id) bind(c)
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function grpc_cancel(session_id) bind(c)
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function grpc_cancel_all() bind(c)
            import
        end function
        integer(c_int) function grpc_wait(session_id) bind(c)
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function grpc_wait_all() bind(c)
            import
        end function
        integer(c_int) function grpc_wait_any(session_id) bind(c)
            import
            integer(c_int), intent(inout) :: session_id
        end function
        integer(c_int) function grpc_get_failed_sessionid(session_id) bind(c)
            import
            integer(c_int), intent(inout) :: session_id
        end function
        integer(c_int) function grpc_get_error(session_id) bind(c)
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function grpc_session_details_get_np(session_id, info) bind(c)
            import
            integer(c_int), value :: session_id
            type(grpc_session_details_np), intent(inout) :: info
        end function
        integer(c_int) function grpc_session_info_remove_np(session_id) bind(c)
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function grpc_function_handle_set_timeout_np(handle, seconds) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
            real(c_double), value :: seconds
        end function
    end interface

    ! Functions that get another form below.
    interface
        integer(c_int) function c_initialize(config_file_name) bind(c, name="grpc_initialize")
            import
            character(kind=c_char), intent(in) :: config_file_name(*)
        end function
        integer(c_int) function c_handle_default(handle, func_name) bind(c, name="grpc_function_handle_default")
            import
            type(grpc_function_handle_t), intent(inout) :: handle
            character(kind=c_char), intent(in) :: func_name(*)
        end function
        integer(c_int) function c_handle_init(handle, server_name, func_name) bind(c, name="grpc_function_handle_init")
            import
            type(grpc_function_handle_t), intent(inout) :: handle
            character(kind=c_char), intent(in) :: server_name(*), func_name(*)
        end function
        integer(c_int) function c_get_handle(handle, session_id) bind(c, name="grpc_get_handle")
            import
            type(c_ptr), intent(inout) :: handle
            integer(c_int), value :: session_id
        end function
        integer(c_int) function c_probe_or(session_ids, length, session_id) bind(c, name="grpc_probe_or")
            import
            integer(c_int), intent(in) :: session_ids(*)
            integer(c_size_t), value :: length
            integer(c_int), intent(inout) :: session_id
        end function
        integer(c_int) function c_wait_and(session_ids, length) bind(c, name="grpc_wait_and")
            import
            integer(c_int), intent(in) :: session_ids(*)
            integer(c_size_t), value :: length
        end function
        integer(c_int) function c_wait_or(session_ids, length, session_id) bind(c, name="grpc_wait_or")
            import
            integer(c_int), intent(in) :: session_ids(*)
            integer(c_size_t), value :: length
            integer(c_int), intent(inout) :: session_id
        end function
        type(c_ptr) function c_session_error_text(session_id) bind(c, name="grpc_session_error_text_np")
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function c_signature(handle, text, size) bind(c, name="grpc_function_handle_signature_np")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            character(kind=c_char), intent(inout) :: text(*)
            integer(c_size_t), value :: size
        end function
        integer(c_int) function c_prototype(handle, text, size) bind(c, name="grpc_function_handle_prototype_np")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            character(kind=c_char), intent(inout) :: text(*)
            integer(c_size_t), value :: size
        end function
        integer(c_int) function c_array_default(handles, count, func_name) &
            bind(c, name="grpc_function_handle_array_default_np")
            import
            type(grpc_function_handle_t), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            character(kind=c_char), intent(in) :: func_name(*)
        end function
        integer(c_int) function c_array_init(handles, count, server_name, func_name) &
            bind(c, name="grpc_function_handle_array_init_np")
            import
            type(grpc_function_handle_t), intent(inout) :: handles(*)
            integer(c_size_t), value :: count
            character(kind=c_char), intent(in) :: server_name(*), func_name(*)
        end function
        integer(c_int) function c_array_destruct(handles, count) bind(c, name="grpc_function_handle_array_destruct_np")
            import
            type(grpc_function_handle_t), intent(in) :: handles(*)
            integer(c_size_t), value :: count
        end function
        integer(c_int) function c_call_stack(handle, stack) bind(c, name="grpc_call_argstack")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(c_ptr), value :: stack
        end function
        integer(c_int) function c_call_stack_async(handle, stack) bind(c, name="grpc_call_argstack_async")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            type(c_ptr), value :: stack
        end function
    end interface

contains

    ! ---- Beginning

    integer(c_int) function grpc_initialize(config_file_name)
        character(len=*), intent(in), optional :: config_file_name
        if (present(config_file_name)) then
            grpc_initialize = c_initialize(c_text(config_file_name))
        else
            grpc_initialize = c_initialize(c_text(""))
        end if
    end function

    ! ---- Handles

    integer(c_int) function grpc_function_handle_default(handle, func_name)
        type(grpc_function_handle_t), intent(inout) :: handle
        character(len=*), intent(in) :: func_name
        grpc_function_handle_default = c_handle_default(handle, c_text(func_name))
    end function

    integer(c_int) function grpc_function_handle_init(handle, server_name, func_name)
        type(grpc_function_handle_t), intent(inout) :: handle
        character(len=*), intent(in) :: server_name, func_name
        grpc_function_handle_init = c_handle_init(handle, c_text(server_name), c_text(func_name))
    end function

    ! Returns the handle that was passed to the call, which has the TARGET attribute there; null on an error.
    integer(c_int) function grpc_get_handle(handle, session_id)
        type(grpc_function_handle_t), pointer, intent(out) :: handle
        integer(c_int), intent(in) :: session_id
        type(c_ptr) :: found
        found = c_null_ptr
        nullify(handle)
        grpc_get_handle = c_get_handle(found, session_id)
        if (c_associated(found)) call c_f_pointer(found, handle)
    end function

    integer(c_int) function grpc_function_handle_array_default_np(handles, func_name)
        type(grpc_function_handle_t), intent(inout), contiguous :: handles(:)
        character(len=*), intent(in) :: func_name
        grpc_function_handle_array_default_np = &
            c_array_default(handles, size(handles, kind=c_size_t), c_text(func_name))
    end function

    integer(c_int) function grpc_function_handle_array_init_np(handles, server_name, func_name)
        type(grpc_function_handle_t), intent(inout), contiguous :: handles(:)
        character(len=*), intent(in) :: server_name, func_name
        grpc_function_handle_array_init_np = &
            c_array_init(handles, size(handles, kind=c_size_t), c_text(server_name), c_text(func_name))
    end function

    integer(c_int) function grpc_function_handle_array_destruct_np(handles)
        type(grpc_function_handle_t), intent(in), contiguous :: handles(:)
        grpc_function_handle_array_destruct_np = c_array_destruct(handles, size(handles, kind=c_size_t))
    end function

    ! Returns the signature as a string; "" if the handle is invalid.
    function grpc_function_handle_signature_np(handle) result(text)
        type(grpc_function_handle_t), intent(in) :: handle
        character(len=:), allocatable :: text
        text = told(handle, c_signature)
    end function

    ! Returns the call as a C program makes it; "" if the handle is invalid.
    function grpc_function_handle_prototype_np(handle) result(text)
        type(grpc_function_handle_t), intent(in) :: handle
        character(len=:), allocatable :: text
        text = told(handle, c_prototype)
    end function

    ! Returns the text that such a function of C writes.
    function told(handle, tell) result(text)
        type(grpc_function_handle_t), intent(in) :: handle
        procedure(c_signature) :: tell
        character(len=:), allocatable :: text
        character(kind=c_char), allocatable :: letters(:)
        integer(c_int) :: length
        allocate(letters(1))
        length = max(0, tell(handle, letters, 1_c_size_t))
        deallocate(letters)
        allocate(letters(length + 1))
        letters = c_null_char
        if (length > 0) length = tell(handle, letters, size(letters, kind=c_size_t))
        allocate(character(len=length) :: text)
        text = transfer(letters(1:length), text)
    end function

    ! ---- Calls

    ! The arguments follow in the order of the signature.
    integer(c_int) function grpc_call(handle, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        include "grpc_arguments.f90"
        grpc_call = grpc_call_arg_stack(handle, all)
    end function

    ! The same without waiting: results are written to variables with the TARGET and ASYNCHRONOUS attributes.
    integer(c_int) function grpc_call_async(handle, session_id, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        integer(c_int), intent(out) :: session_id
        include "grpc_arguments.f90"
        session_id = grpc_call_arg_stack_async(handle, all)
        grpc_call_async = code_of(session_id)
    end function

    ! Calls with the arguments of a stack, which may be used again. Returns a code.
    integer(c_int) function grpc_call_arg_stack(handle, stack) result(given)
        type(grpc_function_handle_t), intent(in), target :: handle
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_call_stack(handle, passed)
        ! This function returns its code.
        if (given == -1) given = code_of(given)
        call destruct(passed)
    end function

    ! The same without waiting. Returns the session id, or GRPC_SESSIONID_VOID on an error; see
    ! grpc_last_error_get_np.
    integer(c_int) function grpc_call_arg_stack_async(handle, stack) result(given)
        type(grpc_function_handle_t), intent(in), target :: handle
        include "grpc_passed.f90"
        if (c_associated(passed)) given = c_call_stack_async(handle, passed)
        call destruct(passed)
    end function

    ! ---- Asking and waiting

    integer(c_int) function grpc_probe_or(session_ids, session_id)
        integer(c_int), intent(in), contiguous :: session_ids(:)
        integer(c_int), intent(out) :: session_id
        session_id = GRPC_SESSIONID_VOID
        grpc_probe_or = c_probe_or(session_ids, size(session_ids, kind=c_size_t), session_id)
    end function

    integer(c_int) function grpc_wait_and(session_ids)
        integer(c_int), intent(in), contiguous :: session_ids(:)
        grpc_wait_and = c_wait_and(session_ids, size(session_ids, kind=c_size_t))
    end function

    integer(c_int) function grpc_wait_or(session_ids, session_id)
        integer(c_int), intent(in), contiguous :: session_ids(:)
        integer(c_int), intent(out) :: session_id
        session_id = GRPC_SESSIONID_VOID
        grpc_wait_or = c_wait_or(session_ids, size(session_ids, kind=c_size_t), session_id)
    end function

    ! ---- Errors

    function grpc_session_error_text_np(session_id) result(text)
        integer(c_int), intent(in) :: session_id
        character(len=:), allocatable :: text
        text = fortran_text(c_session_error_text(session_id))
    end function

end module grpc_calls
