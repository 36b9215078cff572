! Codes of errors, and errors that are detected in Fortran. For the other modules: refuse, code_of.
module grpc_errors
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private
    public :: grpc_error_string, grpc_last_error_text_np, grpc_last_error_get_np, grpc_perror_np
    public :: refuse, code_of

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
    integer(c_int), parameter, public :: GRPC_NAME_EXISTS_NP = 22
    integer(c_int), parameter, public :: GRPC_NAME_NOT_FOUND_NP = 23
    integer(c_int), parameter, public :: GRPC_INVALID_NAME_NP = 24
    integer(c_int), parameter, public :: GRPC_SIZE_DIFFERS_NP = 25
    integer(c_int), parameter, public :: GRPC_NO_ROOM_NP = 26
    integer(c_int), parameter, public :: GRPC_LAST_ERROR_CODE = 27

    interface
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
        integer(c_int) function c_perror(text) bind(c, name="grpc_perror_np")
            import
            character(kind=c_char), intent(in) :: text(*)
        end function
    end interface

    ! The text of this thread's last error that was detected here, and the library's last error at that time.
    character(len=:), allocatable, save :: own_text, text_before
    !$omp threadprivate(own_text, text_before)

contains

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

    ! Records an error of this thread that the library does not see. Its code is GRPC_OTHER_ERROR_CODE.
    subroutine refuse(why)
        character(len=*), intent(in) :: why
        own_text = why
        text_before = fortran_text(c_last_error_text())
    end subroutine

    logical function is_own_the_last()
        is_own_the_last = .false.
        if (allocated(own_text)) is_own_the_last = text_before == fortran_text(c_last_error_text())
    end function

    ! Returns the code for the result of a C function that reports errors only as -1.
    integer(c_int) function code_of(given)
        integer(c_int), intent(in) :: given
        code_of = GRPC_NO_ERROR
        if (given == -1) code_of = grpc_last_error_get_np()
    end function

end module grpc_errors
