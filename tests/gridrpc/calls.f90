! The module grpc, function by function: calls CONFIGURATION SERVER. Prints a line for each case.
program calls
    use grpc
    use suite
    use, intrinsic :: iso_c_binding
    implicit none
    character(len=200) :: configuration, server
    call get_command_argument(1, configuration)
    call get_command_argument(2, server)
    call before_the_beginning()
    call gives(grpc_initialize(configuration), GRPC_NO_ERROR)
    call tell("initialize")
    call gives(grpc_initialize(configuration), GRPC_ALREADY_INITIALIZED)
    call tell("initialize again")
    call handles()
    call matrices()
    call kinds()
    call stacks()
    call refused()
    call sessions()
    call waits()
    call a_function_that_asks()
    call gives(grpc_finalize(), GRPC_NO_ERROR)
    call tell("finalize")
    call gives(grpc_wait_all(), GRPC_NOT_INITIALIZED)
    call tell("nothing after the end")
    call leave()
contains
    subroutine before_the_beginning()
        type(grpc_function_handle_t) :: handle
        call gives(grpc_function_handle_default(handle, "fortran/pick"), GRPC_NOT_INITIALIZED)
        call tell("no handle before")
        call gives(grpc_initialize("/no/such/file.toml"), GRPC_CONFIGFILE_NOT_FOUND)
        call tell("no such file")
        call holds(index(grpc_last_error_text_np(), "/no/such/file.toml") > 0)
        call tell("an error's text")
        call holds(grpc_error_string(GRPC_NOT_COMPLETED) == "GRPC_NOT_COMPLETED")
        call tell("an error's name")
        call holds(grpc_error_string(-3) == "GRPC_UNKNOWN_ERROR_CODE")
        call tell("a name of what is no error")
    end subroutine

    subroutine handles()
        type(grpc_function_handle_t) :: handle, many(3)
        call gives(grpc_function_handle_default(handle, "fortran/none"), GRPC_FUNCTION_NOT_FOUND)
        call tell("no such function")
        call gives(grpc_function_handle_init(handle, "nobody", "fortran/pick"), GRPC_SERVER_NOT_FOUND)
        call tell("no such server")
        call gives(grpc_function_handle_init(handle, trim(server), "fortran/pick   "), GRPC_NO_ERROR)
        call tell("a bound handle")
        call holds(index(grpc_function_handle_signature_np(handle), "fortran/pick(") == 1)
        call tell("a signature")
        call holds(index(grpc_function_handle_prototype_np(handle), "grpc_call(&handle, ") == 1)
        call tell("a prototype")
        call gives(grpc_function_handle_destruct(handle), GRPC_NO_ERROR)
        call tell("a handle ends")
        call gives(grpc_function_handle_destruct(handle), GRPC_INVALID_FUNCTION_HANDLE)
        call tell("and only once")
        call holds(grpc_function_handle_signature_np(handle) == "")
        call holds(grpc_function_handle_prototype_np(handle) == "")
        call tell("no signature of no handle")
        call gives(grpc_function_handle_array_default_np(many, "fortran/pick"), GRPC_NO_ERROR)
        call tell("an array of handles")
        call gives(grpc_function_handle_array_destruct_np(many), GRPC_NO_ERROR)
        call tell("which ends")
        call gives(grpc_function_handle_array_init_np(many, server, "fortran/pick"), GRPC_NO_ERROR)
        call tell("a bound array")
        call gives(grpc_function_handle_array_destruct_np(many), GRPC_NO_ERROR)
        call tell("which ends, too")
    end subroutine

    ! In a Fortran function a(m, n) is a(m, n), in a C function it is a(n, m).
    subroutine matrices()
        type(grpc_function_handle_t) :: pick, by_rows, outer, shift
        real(c_double), target :: a(2, 3), turned(3, 2), value, x(2), y(3)
        real(c_float), target :: many(3, 2, 3, 2), before(3, 2, 3, 2)
        integer :: i, j, k, l
        a = reshape([1d0, 2d0, 3d0, 4d0, 5d0, 6d0], [2, 3])
        turned = transpose(a)
        call gives(grpc_function_handle_default(pick, "fortran/pick"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_default(by_rows, "fortran/pick_by_rows"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_default(outer, "fortran/outer"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_default(shift, "fortran/shift"), GRPC_NO_ERROR)
        call tell("handles of matrices")
        do i = 1, 2
            do j = 1, 3
                call gives(grpc_call(pick, 2, 3, a, i, j, value), GRPC_NO_ERROR)
                call holds(value == a(i, j))
                call gives(grpc_call(by_rows, 3, 2, a, j, i, value), GRPC_NO_ERROR)
                call holds(value == a(i, j))
                call gives(grpc_call(by_rows, 2, 3, turned, i, j, value), GRPC_NO_ERROR)
                call holds(value == a(i, j))
            end do
        end do
        call tell("elements of a matrix")
        x = [2, 3]
        y = [5, 7, 11]
        call gives(grpc_call(outer, size(x), size(y), x, y, a), GRPC_NO_ERROR)
        call holds(all(a == spread(x, 2, 3) * spread(y, 1, 2)))
        call tell("a matrix as a result")
        call random_number(before)
        many = before
        call gives(grpc_call(shift, 3, many), GRPC_NO_ERROR)
        do concurrent (i = 1:3, j = 1:2, k = 1:3, l = 1:2)
            before(i, j, k, l) = before(i, j, k, l) + real(i + 10 * j + 100 * k + 1000 * l)
        end do
        call holds(all(many == before))
        call tell("an array of four dimensions")
    end subroutine

    subroutine kinds()
        type(grpc_function_handle_t) :: handle
        complex(c_double_complex), target :: sum
        integer(c_int8_t) :: c(2) = [1_c_int8_t, 2_c_int8_t]
        integer(c_int16_t) :: s(2) = [3_c_int16_t, 4_c_int16_t]
        integer(c_int) :: i(2) = [5, 6]
        integer(c_int64_t) :: l(2) = [7_c_int64_t, 8_c_int64_t]
        complex(c_float_complex) :: u(2) = [(1, 2), (3, 4)]
        logical(c_bool) :: b(2) = [.true._c_bool, .false._c_bool]
        character(kind=c_char) :: letters(8)
        call gives(grpc_function_handle_default(handle, "fortran/kinds"), GRPC_NO_ERROR)
        call gives(grpc_call(handle, -1_c_int8_t, 300_c_int16_t, -70000, 5000000000_c_int64_t, 0.5, 0.25d0, (1.0, &
            2.0), (3d0, 4d0), .true._c_bool, sum), GRPC_NO_ERROR)
        call holds(sum == (4999930304.75d0, 6d0))
        call tell("scalars of all kinds")
        call gives(grpc_function_handle_default(handle, "fortran/all_kinds"), GRPC_NO_ERROR)
        call gives(grpc_call(handle, c, s, i, l, u, b), GRPC_NO_ERROR)
        call holds(all(c == [2, 1]))
        call holds(all(s == [4, 3]))
        call holds(all(i == [6, 5]))
        call holds(all(l == [8, 7]))
        call holds(all(u == [(3, 4), (1, 2)]))
        call holds(all(b .eqv. [.false., .true.]))
        call tell("arrays of all kinds")
        call gives(grpc_function_handle_default(handle, "fortran/upper"), GRPC_NO_ERROR)
        call gives(grpc_call(handle, "text" // c_null_char, size(letters), letters), GRPC_NO_ERROR)
        call holds(all(letters == ["T", "E", "X", "T", " ", " ", " ", " "]))
        call tell("text")
    end subroutine

    subroutine stacks()
        type(grpc_function_handle_t) :: handle
        type(grpc_arg_stack_t) :: stack, copy
        integer(c_int), target :: n = 8
        character(kind=c_char), target :: letters(8), others(8)
        complex(c_double_complex), target :: sum
        real(c_float), target :: f = 0.5
        call gives(grpc_function_handle_default(handle, "fortran/upper"), GRPC_NO_ERROR)
        call stack%push_value("some text  ")
        call stack%push(n)
        copy = stack
        call stack%push(letters)
        call copy%push(others)
        call gives(grpc_call_arg_stack(handle, stack), GRPC_NO_ERROR)
        call holds(all(letters == ["S", "O", "M", "E", " ", "T", "E", "X"]))
        letters = " "
        n = 4
        call gives(grpc_call_arg_stack(handle, stack), GRPC_NO_ERROR)
        call holds(all(letters == ["S", "O", "M", "E", " ", " ", " ", " "]))
        call tell("a stack, used twice")
        call gives(grpc_call_arg_stack(handle, copy), GRPC_NO_ERROR)
        call holds(stack%count() == 3)
        call holds(all(others(:4) == letters(:4)))
        call tell("a copy of a stack")
        call stack%pop()
        call stack%push(c_null_ptr)
        call gives(grpc_call_arg_stack(handle, stack), GRPC_NO_ERROR)
        call tell("a result that is not wanted")
        call stack%pop()
        call gives(grpc_call_arg_stack(handle, stack), GRPC_OTHER_ERROR_CODE)
        call tell("an argument too few")
        call stack%clear()
        call gives(grpc_function_handle_default(handle, "fortran/kinds"), GRPC_NO_ERROR)
        call holds(stack%count() == 0)
        call stack%push_value(1_c_int8_t)
        call stack%push_value(2_c_int16_t)
        call stack%push_value(3)
        call stack%push_value(4_c_int64_t)
        call stack%push(f)
        call stack%push_value(0.25d0)
        call stack%push_value((1.0, 2.0))
        call stack%push_value((3d0, 4d0))
        call stack%push_value(.true._c_bool)
        call stack%push(sum)
        call gives(grpc_wait(grpc_call_arg_stack_async(handle, stack)), GRPC_NO_ERROR)
        call holds(sum == (15.75d0, 6d0))
        call tell("values on a stack")
        call gives(grpc_call_arg_stack_async(handle, copy), GRPC_SESSIONID_VOID)
        call tell("another function's arguments")
    end subroutine

    ! Mistakes that the module detects.
    subroutine refused()
        type(grpc_function_handle_t) :: handle
        real(c_double), target :: a(4, 4), value
        real(c_double), allocatable :: nothing(:, :)
        integer(c_int) :: id
        a = 1
        allocate(nothing(2, 2))
        deallocate(nothing)
        call gives(grpc_function_handle_default(handle, "fortran/pick"), GRPC_NO_ERROR)
        call gives(grpc_call(handle, 2, 2, a(1:2, 1:2), 1, 1, value), GRPC_OTHER_ERROR_CODE)
        call holds(grpc_last_error_text_np() == "argument 3 is not contiguous: assign it to an array of its own")
        call tell("a section")
        call gives(grpc_last_error_get_np(), GRPC_OTHER_ERROR_CODE)
        call tell("its code")
        call gives(grpc_call(handle, 4, 2, a(:, 1:2), 1, 1, value), GRPC_NO_ERROR)
        call tell("a section that is whole columns")
        call gives(grpc_call_async(handle, id, 2, 2, nothing, 1, 1, value), GRPC_OTHER_ERROR_CODE)
        call holds(id == GRPC_SESSIONID_VOID)
        call holds(grpc_last_error_text_np() == "argument 3 is left out, or not allocated")
        call tell("an array that is not allocated")
        call gives(grpc_call(handle, 2, 2), GRPC_OTHER_ERROR_CODE)
        call tell("arguments left out")
        call holds(grpc_last_error_text_np() /= "argument 3 is left out, or not allocated")
        call tell("the newer error counts")
    end subroutine

    subroutine sessions()
        type(grpc_function_handle_t), target :: forever, pick
        type(grpc_function_handle_t), pointer :: found
        type(grpc_session_details_np) :: info
        real(c_double), target, asynchronous :: value
        integer(c_int), target, asynchronous :: never
        integer(c_int) :: id
        call gives(grpc_function_handle_default(forever, "fortran/forever"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_default(pick, "fortran/pick"), GRPC_NO_ERROR)
        call gives(grpc_call_async(forever, id, 1, never), GRPC_NO_ERROR)
        call gives(grpc_probe(id), GRPC_NOT_COMPLETED)
        call gives(grpc_get_handle(found, id), GRPC_NO_ERROR)
        call holds(associated(found, forever))
        call tell("the handle of a session")
        call gives(grpc_cancel(id), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_SESSION_FAILED)
        call gives(grpc_get_error(id), GRPC_CANCELED_NP)
        call tell("a session that is cancelled")
        call holds(len(grpc_session_error_text_np(id)) > 0)
        call tell("the text of its error")
        call gives(grpc_get_failed_sessionid(id), GRPC_NO_ERROR)
        call holds(id /= GRPC_SESSIONID_VOID)
        call gives(grpc_get_failed_sessionid(id), GRPC_NO_ERROR)
        call holds(id == GRPC_SESSIONID_VOID)
        call tell("sessions that failed")
        call gives(grpc_function_handle_set_timeout_np(forever, 0.05d0), GRPC_NO_ERROR)
        call gives(grpc_call(forever, 1, never), GRPC_TIMEOUT_NP)
        call tell("a limit of time")
        call gives(grpc_call_async(pick, id, 1, 2, [3d0, 4d0], 1, 2, value), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(value == 4)
        call gives(grpc_session_details_get_np(id, info), GRPC_NO_ERROR)
        call holds(info%is_done == 1)
        call holds(info%server(1) == "s")
        call holds(info%total_s >= 0)
        call tell("what is known of a session")
        call gives(grpc_session_info_remove_np(id), GRPC_NO_ERROR)
        call gives(grpc_get_error(id), GRPC_INVALID_SESSION_ID)
        call tell("a session is forgotten")
        call gives(grpc_call_async(forever, id, 1, never), GRPC_NO_ERROR)
        call gives(grpc_cancel_all(), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_SESSION_FAILED)
        call tell("all are cancelled")
    end subroutine

    subroutine a_function_that_asks()
        type(grpc_function_handle_t) :: until_canceled
        character(len=500) :: folder
        integer(c_int), target, asynchronous :: rounds
        integer(c_int) :: id
        call get_environment_variable("PWD", folder)
        call gives(grpc_function_handle_default(until_canceled, "fortran/until_canceled"), GRPC_NO_ERROR)
        call gives(grpc_call_async(until_canceled, id, trim(folder) // "/runs" // c_null_char, &
            trim(folder) // "/saw" // c_null_char, rounds), GRPC_NO_ERROR)
        call await(trim(folder) // "/runs")
        call gives(grpc_cancel(id), GRPC_NO_ERROR)
        call await(trim(folder) // "/saw")
        call gives(grpc_wait(id), GRPC_SESSION_FAILED)
        call gives(grpc_get_error(id), GRPC_CANCELED_NP)
        call tell("a function that sees that it is cancelled")
    end subroutine

    subroutine await(name)
        character(len=*), intent(in) :: name
        logical :: is_there
        is_there = .false.
        do while (.not. is_there)
            inquire(file=name, exist=is_there)
        end do
    end subroutine

    subroutine waits()
        type(grpc_function_handle_t), target :: pick
        real(c_double), target, asynchronous :: values(6)
        real(c_double) :: a(6)
        integer(c_int) :: ids(6), id, i
        a = [1, 2, 3, 4, 5, 6]
        values = 0
        call gives(grpc_function_handle_default(pick, "fortran/pick"), GRPC_NO_ERROR)
        do i = 1, 6
            call gives(grpc_call_async(pick, ids(i), 6, 1, a, i, 1, values(i)), GRPC_NO_ERROR)
        end do
        a = 0
        call tell("calls that do not wait")
        call gives(grpc_wait_and(ids(1:2)), GRPC_NO_ERROR)
        call holds(all(values(1:2) == [1, 2]))
        call tell("wait for all of some")
        call gives(grpc_wait_or(ids(3:4), id), GRPC_NO_ERROR)
        call holds((id == ids(3) .or. id == ids(4)))
        call tell("wait for one of some")
        call gives(grpc_wait_any(id), GRPC_NO_ERROR)
        call holds(any(ids == id))
        call tell("wait for any")
        call gives(grpc_wait_all(), GRPC_NO_ERROR)
        call holds(all(values == [1, 2, 3, 4, 5, 6]))
        call tell("wait for all")
        call gives(grpc_probe_or(ids(1:0), id), GRPC_NONE_COMPLETED)
        call holds(id == GRPC_SESSIONID_VOID)
        call tell("probe none")
        call gives(grpc_wait_and(ids), GRPC_INVALID_SESSION_ID)
        call tell("sessions are waited for once")
    end subroutine
end program
