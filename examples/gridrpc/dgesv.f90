! A server solves a system of linear equations, in Fortran: dgesv CONFIGURATION [N]
program solve
    use grpc
    use, intrinsic :: iso_c_binding
    implicit none
    type(grpc_function_handle_t) :: handle
    character(len=200) :: word
    integer(c_int) :: n = 200, info, i, j
    integer(c_int), allocatable :: pivots(:)
    real(c_double), allocatable :: a(:, :), b(:), x(:), factors(:, :)
    call get_command_argument(2, word)
    if (word /= "") read (word, *) n
    allocate(a(n, n), b(n), x(n), factors(n, n), pivots(n))
    do i = 1, n
        b(i) = 1 + mod(i, 7)
        do j = 1, n
            a(i, j) = 1d0 / (1 + mod(i * 7 + j * 3, 11)) + merge(n, 0, i == mod(j, n) + 1)
        end do
    end do
    ! The function is written in C: its a[i][j] is a(j, i) here.
    factors = transpose(a)
    x = b
    call get_command_argument(1, word)
    call must(grpc_initialize(word), "grpc_initialize")
    call must(grpc_function_handle_default(handle, "examples/dgesv"), "examples/dgesv")
    call must(grpc_call(handle, n, 1, factors, pivots, x, info), "examples/dgesv")
    print '(i0, a, i0, 2a)', n, " equations: info ", info, ", the residual is ", &
        trim(merge("small    ", "too large", maxval(abs(matmul(a, x) - b)) < 1d-9 * n))
    call must(grpc_function_handle_destruct(handle), "grpc_function_handle_destruct")
    call must(grpc_finalize(), "grpc_finalize")
contains
    subroutine must(error, what)
        integer(c_int), intent(in) :: error
        character(len=*), intent(in) :: what
        integer(c_int) :: told
        if (error == GRPC_NO_ERROR) return
        told = grpc_perror_np(what)
        error stop 1
    end subroutine
end program
