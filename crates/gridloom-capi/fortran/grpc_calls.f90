! Sessions of the library: grpc.h and grpc_extensions.h for Fortran.
module grpc_calls
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private

    integer(c_int), parameter, public :: GRPC_SESSIONID_VOID = -1
    integer(c_int), parameter, public :: GRPC_NO_ERROR = 0
    integer(c_int), parameter, public :: GRPC_NOT_INITIALIZED = 1
    integer(c_int), parameter, public :: GRPC_ALREADY_INITIALIZED = 2
    integer(c_int), parameter, public :: GRPC_CONFIGFILE_NOT_FOUND = 3
    integer(c_int), parameter, public :: GRPC_CONFIGFILE_ERROR = 4
    integer(c_int), parameter, public :: GRPC_SERVER_NOT_FOUND = 5
    integer(c_int), parameter, public :: GRPC_FUNCTION_NOT_FOUND = 6
    integer(c_int), parameter, public :: GRPC_INVALID_FUNCTION_HANDLE = 7
    integer(c_int), parameter, public :: GRPC_INVALID_SESSION_ID = 8
    integer(c_int), parameter, public :: GRPC_RPC_REFUSED = 9
    integer(c_int), parameter, public :: GRPC_COMMUNICATION_FAILED = 10
    integer(c_int), parameter, public :: GRPC_SESSION_FAILED = 11
    integer(c_int), parameter, public :: GRPC_NOT_COMPLETED = 12
    integer(c_int), parameter, public :: GRPC_NONE_COMPLETED = 13
    integer(c_int), parameter, public :: GRPC_INVALID_OBJECT_HANDLE_NP = 14
    integer(c_int), parameter, public :: GRPC_CLASS_NOT_FOUND_NP = 15
    integer(c_int), parameter, public :: GRPC_TIMEOUT_NP = 16
    integer(c_int), parameter, public :: GRPC_CANCELED_NP = 17
    integer(c_int), parameter, public :: GRPC_OTHER_ERROR_CODE = 18
    integer(c_int), parameter, public :: GRPC_UNKNOWN_ERROR_CODE = 19
    integer(c_int), parameter, public :: GRPC_INVALID_DATA_NP = 20
    integer(c_int), parameter, public :: GRPC_MAP_DIFFERS_NP = 21
    integer(c_int), parameter, public :: GRPC_LAST_ERROR_CODE = 22

    ! As in grpc.h: named by copies, too. Before a handle is made it is none.
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

    ! An argument: an address, or a copy of a value.
    type :: argument
        type(c_ptr) :: address = c_null_ptr
        logical :: is_contiguous = .true.
        integer(c_int8_t), allocatable :: bytes(:)
    end type

    ! Arguments that are pushed one by one. Copies of a stack are stacks of their own.
    type, public :: grpc_arg_stack_t
        private
        type(argument), allocatable :: arguments(:)
        integer :: used = 0
    contains
        procedure, private :: push_int8, push_int16, push_int32, push_int64, push_float, push_double, push_complex
        procedure, private :: push_double_complex, push_bool, push_letters, push_pointer
        procedure, private :: value_int8, value_int16, value_int32, value_int64, value_float, value_double
        procedure, private :: value_complex, value_double_complex, value_bool, value_text
        ! Pushes a variable, scalar or array; or a pointer as it is, of which c_null_ptr is a result that is not wanted.
        generic :: push => push_int8, push_int16, push_int32, push_int64, push_float, push_double, push_complex, &
            push_double_complex, push_bool, push_letters, push_pointer
        ! Pushes a copy of a scalar or a text, for an input.
        generic :: push_value => value_int8, value_int16, value_int32, value_int64, value_float, value_double, &
            value_complex, value_double_complex, value_bool, value_text
        ! Takes the last argument off; nothing of an empty stack.
        procedure :: pop => stack_pop
        procedure :: clear => stack_clear
        procedure :: count => stack_count
    end type

    public :: grpc_initialize, grpc_finalize
    public :: grpc_function_handle_default, grpc_function_handle_init, grpc_function_handle_destruct, grpc_get_handle
    public :: grpc_call, grpc_call_async, grpc_call_arg_stack, grpc_call_arg_stack_async
    public :: grpc_probe, grpc_probe_or, grpc_cancel, grpc_cancel_all
    public :: grpc_wait, grpc_wait_and, grpc_wait_or, grpc_wait_all, grpc_wait_any
    public :: grpc_get_failed_sessionid, grpc_get_error, grpc_error_string
    public :: grpc_last_error_text_np, grpc_last_error_get_np, grpc_perror_np, grpc_session_error_text_np
    public :: grpc_session_details_get_np, grpc_session_info_remove_np
    public :: grpc_function_handle_set_timeout_np, grpc_function_handle_signature_np, grpc_function_handle_prototype_np
    public :: grpc_function_handle_array_default_np, grpc_function_handle_array_init_np
    public :: grpc_function_handle_array_destruct_np

    ! What the functions of C take as they are.
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

    ! What is given another form below.
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
        type(c_ptr) function c_error_string(error_code) bind(c, name="grpc_error_string")
            import
            integer(c_int), value :: error_code
        end function
        type(c_ptr) function c_last_error_text() bind(c, name="grpc_last_error_text_np")
            import
        end function
        integer(c_int) function c_last_error() bind(c, name="grpc_last_error_get_np")
            import
        end function
        type(c_ptr) function c_session_error_text(session_id) bind(c, name="grpc_session_error_text_np")
            import
            integer(c_int), value :: session_id
        end function
        integer(c_int) function c_perror(text) bind(c, name="grpc_perror_np")
            import
            character(kind=c_char), intent(in) :: text(*)
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
        type(c_ptr) function c_stack_new(max_arguments) bind(c, name="grpc_arg_stack_new")
            import
            integer(c_int), value :: max_arguments
        end function
        integer(c_int) function c_stack_push(stack, argument) bind(c, name="grpc_arg_stack_push_arg")
            import
            type(c_ptr), value :: stack, argument
        end function
        integer(c_int) function c_stack_destruct(stack) bind(c, name="grpc_arg_stack_destruct")
            import
            type(c_ptr), value :: stack
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

    ! The text of this thread's last error that was found here, and what the library's last error was then.
    character(len=:), allocatable, save :: own_text, text_before
    !$omp threadprivate(own_text, text_before)

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

    ! The handle that was given at the call, which has the TARGET attribute there; null on an error.
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

    ! The signature as text; "" if the handle is none.
    function grpc_function_handle_signature_np(handle) result(text)
        type(grpc_function_handle_t), intent(in) :: handle
        character(len=:), allocatable :: text
        text = told(handle, c_signature)
    end function

    ! The call as a program in C makes it; "" if the handle is none.
    function grpc_function_handle_prototype_np(handle) result(text)
        type(grpc_function_handle_t), intent(in) :: handle
        character(len=:), allocatable :: text
        text = told(handle, c_prototype)
    end function

    ! What such a function of C writes.
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

    ! Arguments follow as the signature has them.
    integer(c_int) function grpc_call(handle, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(*), dimension(..), optional, target, asynchronous :: &
            a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
            a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32
        type(grpc_arg_stack_t) :: all
        call take_all(all, &
            a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
            a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        grpc_call = grpc_call_arg_stack(handle, all)
    end function

    ! The same without waiting: results are written to variables with the TARGET and ASYNCHRONOUS attributes.
    integer(c_int) function grpc_call_async(handle, session_id, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_function_handle_t), intent(in), target :: handle
        integer(c_int), intent(out) :: session_id
        type(*), dimension(..), optional, target, asynchronous :: &
            a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
            a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32
        type(grpc_arg_stack_t) :: all
        call take_all(all, &
            a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
            a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        session_id = grpc_call_arg_stack_async(handle, all)
        grpc_call_async = code_of(session_id)
    end function

    ! Calls with the arguments of a stack, which may be used again. A code.
    integer(c_int) function grpc_call_arg_stack(handle, stack)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_arg_stack_t), intent(in), target :: stack
        type(c_ptr) :: passed
        grpc_call_arg_stack = GRPC_OTHER_ERROR_CODE
        passed = as_c(stack)
        if (.not. c_associated(passed)) return
        grpc_call_arg_stack = c_call_stack(handle, passed)
        call destruct(passed)
    end function

    ! The same without waiting. The session id, or GRPC_SESSIONID_VOID on an error, which grpc_last_error_get_np gives.
    integer(c_int) function grpc_call_arg_stack_async(handle, stack)
        type(grpc_function_handle_t), intent(in), target :: handle
        type(grpc_arg_stack_t), intent(in), target :: stack
        type(c_ptr) :: passed
        grpc_call_arg_stack_async = GRPC_SESSIONID_VOID
        passed = as_c(stack)
        if (.not. c_associated(passed)) return
        grpc_call_arg_stack_async = c_call_stack_async(handle, passed)
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

    function grpc_error_string(error_code) result(text)
        integer(c_int), intent(in) :: error_code
        character(len=:), allocatable :: text
        text = fortran_text(c_error_string(error_code))
    end function

    function grpc_last_error_text_np() result(text)
        character(len=:), allocatable :: text
        text = fortran_text(c_last_error_text())
        if (is_own_the_last()) text = own_text
    end function

    integer(c_int) function grpc_last_error_get_np()
        grpc_last_error_get_np = c_last_error()
        if (is_own_the_last()) grpc_last_error_get_np = GRPC_OTHER_ERROR_CODE
    end function

    integer(c_int) function grpc_perror_np(text)
        use, intrinsic :: iso_fortran_env, only: error_unit
        character(len=*), intent(in) :: text
        grpc_perror_np = GRPC_NO_ERROR
        if (is_own_the_last()) then
            write (error_unit, '(5a)') trim(text), ": ", grpc_error_string(GRPC_OTHER_ERROR_CODE), ": ", own_text
        else
            grpc_perror_np = c_perror(c_text(text))
        end if
    end function

    function grpc_session_error_text_np(session_id) result(text)
        integer(c_int), intent(in) :: session_id
        character(len=:), allocatable :: text
        text = fortran_text(c_session_error_text(session_id))
    end function

    ! ---- Argument stacks

    subroutine push_int8(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int8_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int16(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int16_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int32(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int32_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int64(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int64_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_float(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_float), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_double(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_double), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_float_complex), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_double_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_double_complex), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_bool(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        logical(c_bool), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_letters(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        character(kind=c_char, len=1), intent(inout), target, asynchronous :: x(:)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_pointer(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        type(c_ptr), intent(in) :: x
        call add(stack, x, .true.)
    end subroutine

    subroutine value_int8(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int8_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int16(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int16_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int32(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int32_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int64(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int64_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_float(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_float), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_double(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_double), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_float_complex), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_double_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_double_complex), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_bool(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        logical(c_bool), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_text(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        character(len=*), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(c_text(x), [0_c_int8_t]))
    end subroutine

    subroutine stack_pop(stack)
        class(grpc_arg_stack_t), intent(inout) :: stack
        stack%used = max(0, stack%used - 1)
    end subroutine

    subroutine stack_clear(stack)
        class(grpc_arg_stack_t), intent(inout) :: stack
        stack%used = 0
    end subroutine

    integer function stack_count(stack)
        class(grpc_arg_stack_t), intent(in) :: stack
        stack_count = stack%used
    end function

    ! An address, or a copy of what lies somewhere.
    subroutine add(stack, address, is_whole, bytes)
        class(grpc_arg_stack_t), intent(inout) :: stack
        type(c_ptr), intent(in) :: address
        logical, intent(in) :: is_whole
        integer(c_int8_t), intent(in), optional :: bytes(:)
        type(argument), allocatable :: more(:)
        if (.not. allocated(stack%arguments)) allocate(stack%arguments(8))
        if (stack%used == size(stack%arguments)) then
            allocate(more(2 * stack%used))
            more(:stack%used) = stack%arguments
            call move_alloc(more, stack%arguments)
        end if
        stack%used = stack%used + 1
        stack%arguments(stack%used) = argument(address, is_whole)
        if (present(bytes)) stack%arguments(stack%used)%bytes = bytes
    end subroutine

    ! All arguments of a call.
    subroutine take_all(all, &
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
        a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32)
        type(grpc_arg_stack_t), intent(inout) :: all
        type(*), dimension(..), optional, target, asynchronous :: &
            a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, &
            a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32
        call take(all, 1, a1)
        call take(all, 2, a2)
        call take(all, 3, a3)
        call take(all, 4, a4)
        call take(all, 5, a5)
        call take(all, 6, a6)
        call take(all, 7, a7)
        call take(all, 8, a8)
        call take(all, 9, a9)
        call take(all, 10, a10)
        call take(all, 11, a11)
        call take(all, 12, a12)
        call take(all, 13, a13)
        call take(all, 14, a14)
        call take(all, 15, a15)
        call take(all, 16, a16)
        call take(all, 17, a17)
        call take(all, 18, a18)
        call take(all, 19, a19)
        call take(all, 20, a20)
        call take(all, 21, a21)
        call take(all, 22, a22)
        call take(all, 23, a23)
        call take(all, 24, a24)
        call take(all, 25, a25)
        call take(all, 26, a26)
        call take(all, 27, a27)
        call take(all, 28, a28)
        call take(all, 29, a29)
        call take(all, 30, a30)
        call take(all, 31, a31)
        call take(all, 32, a32)
    end subroutine

    ! The argument at that place of a call, if it is there. What is left out before it stays to be seen.
    subroutine take(stack, place, x)
        type(grpc_arg_stack_t), intent(inout) :: stack
        integer, intent(in) :: place
        type(*), dimension(..), optional, target, asynchronous :: x
        if (.not. present(x)) return
        do while (stack%used + 1 < place)
            call add(stack, c_null_ptr, .false.)
        end do
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    ! A stack of C; null, and an error is told, if an argument cannot be passed.
    type(c_ptr) function as_c(stack)
        type(grpc_arg_stack_t), intent(in), target :: stack
        integer :: i
        type(c_ptr) :: address
        as_c = c_null_ptr
        do i = 1, stack%used
            if (stack%arguments(i)%is_contiguous) cycle
            if (c_associated(stack%arguments(i)%address)) then
                call refuse(i, "is not contiguous: assign it to an array of its own")
            else
                call refuse(i, "is left out, or not allocated")
            end if
            return
        end do
        as_c = c_stack_new(max(1_c_int, int(stack%used, c_int)))
        if (.not. c_associated(as_c)) return
        do i = 1, stack%used
            address = stack%arguments(i)%address
            if (allocated(stack%arguments(i)%bytes)) address = c_loc(stack%arguments(i)%bytes)
            if (c_stack_push(as_c, address) /= 0) call refuse(i, "cannot be pushed")
        end do
    end function

    subroutine destruct(passed)
        type(c_ptr), intent(in) :: passed
        if (c_stack_destruct(passed) /= 0) error stop "grpc: a stack that was made is none"
    end subroutine

    ! ---- Own errors, and texts

    subroutine refuse(place, why)
        integer, intent(in) :: place
        character(len=*), intent(in) :: why
        character(len=12) :: number
        write (number, '(i0)') place
        own_text = "argument " // trim(number) // " " // why
        text_before = fortran_text(c_last_error_text())
    end subroutine

    logical function is_own_the_last()
        is_own_the_last = .false.
        if (allocated(own_text)) is_own_the_last = text_before == fortran_text(c_last_error_text())
    end function

    ! Of a session that may not have begun.
    integer(c_int) function code_of(session_id)
        integer(c_int), intent(in) :: session_id
        code_of = GRPC_NO_ERROR
        if (session_id == GRPC_SESSIONID_VOID) code_of = grpc_last_error_get_np()
    end function

end module grpc_calls
