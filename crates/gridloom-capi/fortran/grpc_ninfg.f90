! Attributes of handles and of sessions, and records of sessions: the functions of grpc_ninfg.h that are written by hand.
!
!   type(grpc_handle_attr_t_np) :: made_with
!   type(grpc_session_attr_t_np) :: called_with
!   type(grpc_session_info_t_np) :: info
!   error = grpc_handle_attr_initialize_np(made_with)
!   error = grpc_handle_attr_set_np(made_with, GRPC_HANDLE_ATTR_FUNCNAME, "docs/dot")
!   error = grpc_function_handle_init_with_attr_np(dot, made_with)
!   error = grpc_handle_attr_destruct_np(made_with)
!   error = grpc_session_attr_initialize_np(dot, called_with)
!   called_with%gsa_timeout = 30
!   error = grpc_call_with_attr_np(dot, called_with, n, x, y, sum)
!   error = grpc_get_last_info_np(info, status)
!   if (status == GRPC_SESSION_DONE) seconds = grpc_seconds_np(info%gei_measureExecutable%calculationRealTime)
!
! - grpc_handle_attr_get_np and grpc_session_attr_get_np return values, not copies that must be released,
!   and the record of a session is a variable of the program.
! - A value has the type of its attribute, a string or an integer(c_int). Another type is GRPC_OTHER_ERROR_CODE.
! - The strings in a handle's attributes belong to the library: do not use copies of the attributes after one was
!   destructed.
module grpc_ninfg
    use, intrinsic :: iso_c_binding
    use grpc_types
    use grpc_c
    use grpc_texts
    use grpc_errors
    implicit none
    private

    public :: grpc_handle_attr_set_np, grpc_handle_attr_get_np, grpc_session_attr_get_np, grpc_seconds_np

    interface grpc_handle_attr_set_np
        procedure :: set_text, set_number
    end interface

    ! A string that is not set is "".
    interface grpc_handle_attr_get_np
        procedure :: get_text, get_number
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
        set_text = c_handle_attr_set_np(attr, name, c_loc(text))
    end function

    integer(c_int) function set_number(attr, name, value)
        type(grpc_handle_attr_t_np), intent(inout) :: attr
        integer(c_int), intent(in) :: name
        integer(c_int), intent(in), target :: value
        set_number = GRPC_OTHER_ERROR_CODE
        if (is_of_another_type(name, is_text=.false.)) return
        set_number = c_handle_attr_set_np(attr, name, c_loc(value))
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
        get_text = c_handle_attr_get_np(attr, name, copy)
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
        get_number = c_handle_attr_get_np(attr, name, copy)
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
        if (c_handle_attr_release_np(copy) /= GRPC_NO_ERROR) error stop "grpc: a copy that was given is none"
    end function

    ! ---- Attributes of sessions

    integer(c_int) function grpc_session_attr_get_np(attr, name, value)
        type(grpc_session_attr_t_np), intent(in) :: attr
        integer(c_int), intent(in) :: name
        integer(c_int), intent(out) :: value
        type(c_ptr) :: copy
        value = 0
        copy = c_null_ptr
        grpc_session_attr_get_np = c_session_attr_get_np(attr, name, copy)
        if (grpc_session_attr_get_np == GRPC_NO_ERROR) value = taken_number(copy)
    end function

    ! ---- Records of sessions

    ! Returns a time in seconds.
    pure real(c_double) function grpc_seconds_np(time)
        type(grpc_timeval_np), intent(in) :: time
        grpc_seconds_np = real(time%tv_sec, c_double) + 1d-6 * real(time%tv_usec, c_double)
    end function

end module grpc_ninfg
