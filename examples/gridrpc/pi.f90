! Pi by Monte Carlo, in Fortran: many asynchronous calls. pi CONFIGURATION [CALLS]
program pi
    use grpc
    use, intrinsic :: iso_c_binding
    implicit none
    integer(c_int64_t), parameter :: trials = 1000000
    type(grpc_function_handle_t), target :: handle
    ! A wait changes them, and the compiler has to know that.
    integer(c_int64_t), allocatable, target, asynchronous :: hits(:)
    type(grpc_arg_stack_t) :: arguments
    character(len=200) :: word
    integer(c_int) :: calls = 16, i, id
    call get_command_argument(2, word)
    if (word /= "") read (word, *) calls
    allocate(hits(calls))
    call get_command_argument(1, word)
    call must(grpc_initialize(word), "grpc_initialize")
    call must(grpc_function_handle_default(handle, "examples/pi_trial"), "examples/pi_trial")
    do i = 1, calls - 1
        call must(grpc_call_async(handle, id, i, trials, hits(i)), "examples/pi_trial")
    end do
    ! The last call uses an argument stack, for programs that learn at run time which function to call.
    call arguments%push_value(calls)
    call arguments%push_value(trials)
    call arguments%push(hits(calls))
    id = grpc_call_arg_stack_async(handle, arguments)
    if (id == GRPC_SESSIONID_VOID) call must(GRPC_OTHER_ERROR_CODE, "examples/pi_trial")
    call must(grpc_wait_all(), "grpc_wait_all")
    print '(a, f6.4, a, i0, a)', "pi is about ", 4 * real(sum(hits), c_double) / real(calls * trials, c_double), &
        " after ", calls * trials, " points"
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
