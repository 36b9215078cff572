! Common parts of the Fortran programs: a case consists of the checks (gives, holds) since the previous case, and is
! reported in a line.
module suite
    use, intrinsic :: iso_c_binding, only: c_int
    use grpc
    implicit none
    private
    public :: gives, holds, tell, leave

    integer, save :: failed = 0
    logical, save :: is_right = .true.

contains

    ! In separate statements, because all operands of .and. may be evaluated.
    subroutine gives(error, expected)
        integer(c_int), intent(in) :: error, expected
        if (error == expected) return
        is_right = .false.
        print '(5a)', grpc_error_string(error), ", not ", grpc_error_string(expected), ": ", grpc_last_error_text_np()
    end subroutine

    subroutine holds(condition)
        logical, intent(in) :: condition
        is_right = is_right .and. condition
    end subroutine

    subroutine tell(shows)
        character(len=*), intent(in) :: shows
        print '(3a)', trim(merge("ok    ", "not ok", is_right)), " ", shows
        if (.not. is_right) failed = failed + 1
        is_right = .true.
    end subroutine

    ! Ends with an error if a case failed.
    subroutine leave()
        if (failed > 0) error stop 1
    end subroutine

end module suite
