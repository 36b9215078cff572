! Objects, attributes of handles and sessions, and records of ended sessions, through the modules of grpc.f90: objects
! CONFIGURATION. Prints a line for each case.
module counted
    use, intrinsic :: iso_c_binding
    implicit none
    integer(c_int), volatile :: signals = 0
contains
    subroutine on_signal(number) bind(c)
        integer(c_int), value :: number
        signals = signals + number
    end subroutine
end module counted

program objects
    use grpc
    use suite
    use counted
    use, intrinsic :: iso_c_binding
    implicit none
    character(len=200) :: configuration
    character(len=:), allocatable :: server
    interface
        integer(c_int) function raise(number) bind(c)
            import
            integer(c_int), value :: number
        end function
    end interface
    call get_command_argument(1, configuration)
    call gives(grpc_initialize(configuration), GRPC_NO_ERROR)
    call tell("a session")
    call what_sessions_were()
    call attributes_of_handles()
    call attributes_of_sessions()
    call state_of_objects()
    call arrays_of_objects()
    call attributes_of_objects()
    call the_rest()
    call gives(grpc_finalize(), GRPC_NO_ERROR)
    call tell("finalize")
    call leave()
contains
    ! Returns the server that ran a session.
    function server_of(id) result(name)
        integer(c_int), intent(in) :: id
        character(len=:), allocatable :: name
        type(grpc_session_details_np) :: details
        integer :: i
        call gives(grpc_session_details_get_np(id, details), GRPC_NO_ERROR)
        name = ""
        do i = 1, size(details%server)
            if (details%server(i) == c_null_char) exit
            name = name // details%server(i)
        end do
    end function

    subroutine what_sessions_were()
        type(grpc_function_handle_t), target :: add
        type(grpc_function_handle_t), pointer :: found
        type(grpc_session_info_t_np) :: info, again
        integer(c_int) :: id, status
        integer(c_int), target, asynchronous :: y
        call gives(grpc_function_handle_default(add, "gridrpc/add"), GRPC_NO_ERROR)
        call gives(grpc_call_async(add, id, 3, y), GRPC_NO_ERROR)
        call gives(grpc_function_handle_get_from_session_np(found, id), GRPC_NO_ERROR)
        call holds(associated(found, add))
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(y == 4)
        server = server_of(id)
        call holds(len(server) > 0)
        call tell("a handle of a session")
        call gives(grpc_session_info_get_np(id, info, status), GRPC_NO_ERROR)
        call holds(status == GRPC_SESSION_DONE)
        call holds(grpc_seconds_np(info%gei_measureClient%calculationRealTime) > 0)
        call gives(grpc_get_info_np(id, again, status), GRPC_NO_ERROR)
        call gives(grpc_get_last_info_np(again, status), GRPC_NO_ERROR)
        call holds(again%gei_measureClient%calculationRealTime%tv_usec == info%gei_measureClient%calculationRealTime%tv_usec)
        call gives(grpc_session_info_get_np(12345, info, status), GRPC_INVALID_SESSION_ID)
        call holds(status == GRPC_SESSION_UNKNOWN_STATUS)
        call tell("what is known of a session")
        call gives(grpc_function_handle_is_ready_np(add), GRPC_NO_ERROR)
        call gives(grpc_function_handle_get_error_np(add), GRPC_NO_ERROR)
        call gives(grpc_function_handle_destruct(add), GRPC_NO_ERROR)
        call gives(grpc_function_handle_is_ready_np(add), GRPC_INVALID_FUNCTION_HANDLE)
        call gives(grpc_function_handle_get_error_np(add), GRPC_INVALID_FUNCTION_HANDLE)
        call gives(grpc_function_handle_perror_np(add, "a handle that ended"), GRPC_NO_ERROR)
        call tell("whether handles are ready")
    end subroutine

    subroutine attributes_of_handles()
        type(grpc_handle_attr_t_np) :: attr, own
        type(grpc_function_handle_t) :: handle, handles(2)
        character(len=:), allocatable :: text
        integer(c_int) :: number
        integer(c_int), target :: y
        call gives(grpc_handle_attr_initialize_np(attr), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, text), GRPC_NO_ERROR)
        call holds(text == "")
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, "gridrpc/add  "), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, text), GRPC_NO_ERROR)
        call holds(text == "gridrpc/add")
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT, 17), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT, number), GRPC_NO_ERROR)
        call holds(number == 17)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER, number), GRPC_NO_ERROR)
        call holds(number == GRPC_ARGUMENT_TRANSFER_WAIT)
        call tell("attributes of a handle")
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, 3), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_last_error_get_np(), GRPC_OTHER_ERROR_CODE)
        call holds(grpc_last_error_text_np() == "attribute 4 is a text, no number")
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_PORT, "3"), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, number), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_handle_attr_get_np(attr, GRPC_HANDLE_ATTR_MPI_NCPUS, text), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_handle_attr_set_np(attr, 99, 3), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_handle_attr_get_np(attr, 99, text), GRPC_OTHER_ERROR_CODE)
        call tell("values of other types")
        call gives(grpc_function_handle_array_init_with_attr_np(handles, attr), GRPC_NO_ERROR)
        call gives(grpc_call(handles(2), 3, y), GRPC_NO_ERROR)
        call holds(y == 4)
        call gives(grpc_function_handle_array_destruct_np(handles), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_HOSTNAME, server), GRPC_NO_ERROR)
        call gives(grpc_function_handle_init_with_attr_np(handle, attr), GRPC_NO_ERROR)
        call gives(grpc_function_handle_get_attr_np(handle, own), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_get_np(own, GRPC_HANDLE_ATTR_HOSTNAME, text), GRPC_NO_ERROR)
        call holds(text == server)
        call gives(grpc_handle_attr_get_np(own, GRPC_HANDLE_ATTR_FUNCNAME, text), GRPC_NO_ERROR)
        call holds(text == "gridrpc/add")
        call gives(grpc_handle_attr_destruct_np(own), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_HOSTNAME, "nowhere.invalid"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_init_with_attr_np(handle, attr), GRPC_SERVER_NOT_FOUND)
        call gives(grpc_handle_attr_destruct_np(attr), GRPC_NO_ERROR)
        call tell("handles made with attributes")
    end subroutine

    subroutine attributes_of_sessions()
        type(grpc_function_handle_t) :: add, sleep
        type(grpc_session_attr_t_np) :: attr
        type(grpc_arg_stack_t) :: stack
        integer(c_int) :: id, number
        integer(c_int), target, asynchronous :: y
        real(c_double), target, asynchronous :: wide(4, 4)
        call gives(grpc_function_handle_default(add, "gridrpc/add"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_default(sleep, "gridrpc/sleep"), GRPC_NO_ERROR)
        call gives(grpc_function_handle_set_timeout_np(add, 90d0), GRPC_NO_ERROR)
        call gives(grpc_session_attr_initialize_np(add, attr), GRPC_NO_ERROR)
        call holds(attr%gsa_timeout == 90)
        call gives(grpc_session_attr_get_np(attr, GRPC_SESSION_ATTR_SESSION_TIMEOUT, number), GRPC_NO_ERROR)
        call holds(number == 90)
        call gives(grpc_call_with_attr_np(add, attr, 2, y), GRPC_NO_ERROR)
        call holds(y == 3)
        call gives(grpc_call_async_with_attr_np(add, id, attr, 4, y), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(y == 5)
        call stack%push_value(10_c_int)
        call stack%push(y)
        call gives(grpc_call_arg_stack_with_attr_np(add, attr, stack), GRPC_NO_ERROR)
        call holds(y == 11)
        y = 0
        id = grpc_call_arg_stack_async_with_attr_np(add, attr, stack)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(y == 11)
        call tell("calls with attributes")
        call gives(grpc_session_attr_set_np(attr, GRPC_SESSION_ATTR_SESSION_TIMEOUT, 1), GRPC_NO_ERROR)
        call gives(grpc_call_with_attr_np(sleep, attr, 60), GRPC_TIMEOUT_NP)
        call gives(grpc_call_async_with_attr_np(sleep, id, attr, 60), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_SESSION_FAILED)
        call gives(grpc_get_error(id), GRPC_TIMEOUT_NP)
        call tell("time limits of calls")
        call gives(grpc_call_with_attr_np(add, attr, 2), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_call_async_with_attr_np(add, id, attr, 2, wide(1:2, 1:2)), GRPC_OTHER_ERROR_CODE)
        call holds(id == GRPC_SESSIONID_VOID)
        call gives(grpc_session_attr_set_np(attr, 99, 1), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_session_attr_destruct_np(attr), GRPC_NO_ERROR)
        call tell("refused calls with attributes")
    end subroutine

    subroutine state_of_objects()
        type(grpc_object_handle_t_np), target :: a, b
        type(grpc_object_handle_t_np), pointer :: found
        type(grpc_arg_stack_t) :: stack
        integer(c_long), target, asynchronous :: sum, count
        integer(c_int) :: id
        call gives(grpc_invoke_np(a, "add", 5, sum, count), GRPC_INVALID_OBJECT_HANDLE_NP)
        call gives(grpc_object_handle_default_np(a, "gridrpc/none"), GRPC_CLASS_NOT_FOUND_NP)
        call tell("no object")
        call gives(grpc_object_handle_default_np(a, "account"), GRPC_NO_ERROR)
        call gives(grpc_object_handle_init_np(b, server, "gridrpc/account"), GRPC_NO_ERROR)
        call gives(grpc_invoke_np(a, "add", 5, sum, count), GRPC_NO_ERROR)
        call holds(sum == 105 .and. count == 1)
        call gives(grpc_invoke_np(b, "add", 1, sum, count), GRPC_NO_ERROR)
        call holds(sum == 101 .and. count == 1)
        call gives(grpc_invoke_async_np(a, "add", id, -10, sum, count), GRPC_NO_ERROR)
        call gives(grpc_get_object_handle_np(found, id), GRPC_NO_ERROR)
        call holds(associated(found, a))
        call gives(grpc_object_handle_get_from_session_np(found, id), GRPC_NO_ERROR)
        call holds(associated(found, a))
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(sum == 95 .and. count == 2)
        call tell("state of its own")
        call stack%push_value(1_c_int)
        call stack%push(sum)
        call stack%push(count)
        call gives(grpc_invoke_arg_stack_np(b, "add", stack), GRPC_NO_ERROR)
        call holds(sum == 102)
        id = grpc_invoke_arg_stack_async_np(b, "add", stack)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(sum == 103 .and. count == 3)
        call holds(server_of(id) == server)
        call tell("methods with stacks")
        call gives(grpc_invoke_np(a, "no_method"), GRPC_FUNCTION_NOT_FOUND)
        call gives(grpc_invoke_async_np(a, "add", id, 5), GRPC_OTHER_ERROR_CODE)
        call holds(id == GRPC_SESSIONID_VOID)
        call tell("refused methods")
        call gives(grpc_object_handle_is_ready_np(a), GRPC_NO_ERROR)
        call gives(grpc_object_handle_destruct_np(a), GRPC_NO_ERROR)
        call gives(grpc_object_handle_destruct_np(a), GRPC_INVALID_OBJECT_HANDLE_NP)
        call gives(grpc_object_handle_is_ready_np(a), GRPC_INVALID_OBJECT_HANDLE_NP)
        call gives(grpc_object_handle_get_error_np(a), GRPC_INVALID_OBJECT_HANDLE_NP)
        call gives(grpc_object_handle_perror_np(a, "an object that ended"), GRPC_NO_ERROR)
        call gives(grpc_object_handle_destruct_np(b), GRPC_NO_ERROR)
        call tell("objects end once")
    end subroutine

    subroutine arrays_of_objects()
        type(grpc_object_handle_t_np) :: many(3)
        integer(c_long), target :: sum, count
        integer :: i
        call gives(grpc_object_handle_array_default_np(many, "account"), GRPC_NO_ERROR)
        do i = 1, size(many)
            call gives(grpc_invoke_np(many(i), "add", i, sum, count), GRPC_NO_ERROR)
            call holds(sum == 100 + i .and. count == 1)
        end do
        call gives(grpc_object_handle_array_destruct_np(many), GRPC_NO_ERROR)
        call gives(grpc_object_handle_array_init_np(many(:2), server, "account"), GRPC_NO_ERROR)
        call gives(grpc_invoke_np(many(2), "add", 1, sum, count), GRPC_NO_ERROR)
        call holds(sum == 101)
        call gives(grpc_object_handle_array_destruct_np(many(:2)), GRPC_NO_ERROR)
        call tell("arrays of objects")
    end subroutine

    subroutine attributes_of_objects()
        type(grpc_handle_attr_t_np) :: attr, own
        type(grpc_session_attr_t_np) :: session
        type(grpc_object_handle_t_np) :: object, objects(1)
        type(grpc_arg_stack_t) :: stack
        character(len=:), allocatable :: text
        integer(c_long), target, asynchronous :: sum, count
        integer(c_int) :: id
        call gives(grpc_handle_attr_initialize_np(attr), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_set_np(attr, GRPC_HANDLE_ATTR_FUNCNAME, "gridrpc/account"), GRPC_NO_ERROR)
        call gives(grpc_object_handle_init_with_attr_np(object, attr), GRPC_NO_ERROR)
        call gives(grpc_object_handle_array_init_with_attr_np(objects, attr), GRPC_NO_ERROR)
        call gives(grpc_object_handle_get_attr_np(object, own), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_get_np(own, GRPC_HANDLE_ATTR_FUNCNAME, text), GRPC_NO_ERROR)
        call holds(index(text, "account") > 0)
        call gives(grpc_handle_attr_destruct_np(own), GRPC_NO_ERROR)
        call gives(grpc_session_attr_initialize_with_object_handle_np(object, session), GRPC_NO_ERROR)
        call gives(grpc_invoke_with_attr_np(object, "add", session, 1, sum, count), GRPC_NO_ERROR)
        call holds(sum == 101)
        call gives(grpc_invoke_async_with_attr_np(object, "add", id, session, 2, sum, count), GRPC_NO_ERROR)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(sum == 103)
        call stack%push_value(4_c_int)
        call stack%push(sum)
        call stack%push(count)
        call gives(grpc_invoke_arg_stack_with_attr_np(object, "add", session, stack), GRPC_NO_ERROR)
        id = grpc_invoke_arg_stack_async_with_attr_np(object, "add", session, stack)
        call gives(grpc_wait(id), GRPC_NO_ERROR)
        call holds(sum == 111 .and. count == 4)
        call tell("methods with attributes")
        session%gsa_timeout = 1
        call gives(grpc_invoke_with_attr_np(objects(1), "never", session, 0), GRPC_TIMEOUT_NP)
        call gives(grpc_object_handle_destruct_np(object), GRPC_NO_ERROR)
        call gives(grpc_handle_attr_destruct_np(attr), GRPC_NO_ERROR)
        call tell("time limits of methods")
    end subroutine

    subroutine the_rest()
        integer(c_int), parameter :: user_1 = 10
        call gives(grpc_config_file_read_np("/no/such/file.toml"), GRPC_CONFIGFILE_NOT_FOUND)
        call gives(grpc_config_file_read_np(configuration), GRPC_NO_ERROR)
        call gives(grpc_session_info_set_threshold_np(16), GRPC_NO_ERROR)
        call tell("a configuration that is read again")
        call gives(grpc_signal_handler_set_np(user_1, c_funloc(on_signal)), GRPC_NO_ERROR)
        call holds(raise(user_1) == 0)
        call holds(signals == user_1)
        call gives(grpc_signal_handler_set_np(12345, c_funloc(on_signal)), GRPC_OTHER_ERROR_CODE)
        call tell("signals")
    end subroutine
end program objects
