! The functions of fortran.idl: gfortran -shared -fPIC -o libfortran.so grpc_executable.f90 functions.f90
subroutine pick(m, n, a, i, j, value)
    integer, intent(in) :: m, n, i, j
    double precision, intent(in) :: a(m, n)
    double precision, intent(out) :: value
    value = a(i, j)
end subroutine

function pick_by_rows(n, a, i, j) bind(c) result(value)
    use, intrinsic :: iso_c_binding
    integer(c_int), value :: n, i, j
    real(c_double), intent(in) :: a(*)
    real(c_double) :: value
    value = a((i - 1) * n + j)
end function

subroutine outer(m, n, x, y, a)
    integer, intent(in) :: m, n
    double precision, intent(in) :: x(m), y(n)
    double precision, intent(out) :: a(m, n)
    integer :: j
    do j = 1, n
        a(:, j) = x * y(j)
    end do
end subroutine

subroutine shift(n, a)
    integer, intent(in) :: n
    real, intent(inout) :: a(n, 2, n, 2)
    integer :: i, j, k, l
    do concurrent (i = 1:n, j = 1:2, k = 1:n, l = 1:2)
        a(i, j, k, l) = a(i, j, k, l) + real(i + 10 * j + 100 * k + 1000 * l)
    end do
end subroutine

subroutine kinds(c, s, i, l, f, d, u, v, b, sum)
    use, intrinsic :: iso_c_binding
    integer(c_int8_t), intent(in) :: c
    integer(c_int16_t), intent(in) :: s
    integer(c_int32_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: l
    real(c_float), intent(in) :: f
    real(c_double), intent(in) :: d
    complex(c_float_complex), intent(in) :: u
    complex(c_double_complex), intent(in) :: v
    logical(c_bool), intent(in) :: b
    complex(c_double_complex), intent(out) :: sum
    sum = real(c + s + i + l, c_double) + f + d + u + v + merge(1, 0, b)
end subroutine

subroutine all_kinds(c, s, i, l, u, b)
    use, intrinsic :: iso_c_binding
    integer(c_int8_t), intent(inout) :: c(2)
    integer(c_int16_t), intent(inout) :: s(2)
    integer(c_int32_t), intent(inout) :: i(2)
    integer(c_int64_t), intent(inout) :: l(2)
    complex(c_float_complex), intent(inout) :: u(2)
    logical(c_bool), intent(inout) :: b(2)
    c = c(2:1:-1)
    s = s(2:1:-1)
    i = i(2:1:-1)
    l = l(2:1:-1)
    u = u(2:1:-1)
    b = b(2:1:-1)
end subroutine

subroutine upper(text, n, letters)
    character(len=*), intent(in) :: text
    integer, intent(in) :: n
    character(len=1), intent(out) :: letters(n)
    integer :: i
    letters = ' '
    do i = 1, min(n, len(text))
        letters(i) = text(i:i)
        if (text(i:i) >= 'a' .and. text(i:i) <= 'z') letters(i) = achar(iachar(text(i:i)) - 32)
    end do
end subroutine

subroutine forever(seed, never)
    integer, intent(in) :: seed
    integer, volatile, intent(out) :: never
    never = seed
    do while (never == seed)
        call sleep(1)
    end do
end subroutine

subroutine until_canceled(runs, saw, rounds)
    use grpc_executable
    character(len=*), intent(in) :: runs, saw
    integer, intent(out) :: rounds
    logical :: is_canceled
    rounds = 0
    is_canceled = grpc_is_canceled_np()
    call leave(runs)
    do while (.not. is_canceled)
        rounds = rounds + 1
        is_canceled = grpc_is_canceled_np()
    end do
    call leave(saw)
contains
    subroutine leave(name)
        character(len=*), intent(in) :: name
        integer :: unit
        open(newunit=unit, file=name, status="replace", action="write")
        close(unit)
    end subroutine
end subroutine
