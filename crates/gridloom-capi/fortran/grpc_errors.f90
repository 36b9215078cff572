! Errors, including those that are detected in Fortran. For the other modules: refuse, code_of.
module grpc_errors
    use, intrinsic :: iso_c_binding
    use grpc_types
    use grpc_c
    use grpc_texts
    implicit none
    private
    public :: grpc_last_error_text_np, grpc_last_error_get_np, grpc_perror_np
    public :: refuse, code_of

    ! The text of this thread's last error that was detected here, and the library's last error at that time.
    character(len=:), allocatable, save :: own_text, text_before
    !$omp threadprivate(own_text, text_before)

contains

    function grpc_last_error_text_np() result(text)
        character(len=:), allocatable :: text
        text = fortran_text(c_last_error_text_np())
        if (is_own_the_last()) text = own_text
    end function

    integer(c_int) function grpc_last_error_get_np()
        grpc_last_error_get_np = c_last_error_get_np()
        if (is_own_the_last()) grpc_last_error_get_np = GRPC_OTHER_ERROR_CODE
    end function

    integer(c_int) function grpc_perror_np(text)
        use, intrinsic :: iso_fortran_env, only: error_unit
        character(len=*), intent(in) :: text
        grpc_perror_np = GRPC_NO_ERROR
        if (is_own_the_last()) then
            write (error_unit, '(5a)') trim(text), ": ", fortran_text(c_error_string(GRPC_OTHER_ERROR_CODE)), &
                ": ", own_text
        else
            grpc_perror_np = c_perror_np(c_text(text))
        end if
    end function

    ! Records an error of this thread that the library does not see. Its code is GRPC_OTHER_ERROR_CODE.
    subroutine refuse(why)
        character(len=*), intent(in) :: why
        own_text = why
        text_before = fortran_text(c_last_error_text_np())
    end subroutine

    logical function is_own_the_last()
        is_own_the_last = .false.
        if (allocated(own_text)) is_own_the_last = text_before == fortran_text(c_last_error_text_np())
    end function

    ! Returns the code for the result of a C function that reports errors only as -1.
    integer(c_int) function code_of(given)
        integer(c_int), intent(in) :: given
        code_of = GRPC_NO_ERROR
        if (given == -1) code_of = grpc_last_error_get_np()
    end function

end module grpc_errors
