! Records of handles and sessions, configuration files and signals: the rest of grpc_ninfg.h for Fortran.
!
!   type(grpc_session_info_t_np) :: info
!   error = grpc_session_info_get_np(id, info, status)
!   if (status == GRPC_SESSION_DONE) seconds = grpc_seconds_np(info%gei_measureExecutable%calculationRealTime)
!
! - The record of a session belongs to the program here: nothing has to be released.
module grpc_sessions
    use, intrinsic :: iso_c_binding
    use grpc_texts
    use grpc_errors
    use grpc_calls
    use grpc_objects
    implicit none
    private

    ! States of a session.
    integer(c_int), parameter, public :: GRPC_SESSION_DONE = 1
    integer(c_int), parameter, public :: GRPC_SESSION_ARG_IS_NOT_TRANSMITED = 2
    integer(c_int), parameter, public :: GRPC_SESSION_EXECUTING = 3
    integer(c_int), parameter, public :: GRPC_SESSION_DOWN = 4
    integer(c_int), parameter, public :: GRPC_SESSION_UNKNOWN_STATUS = 5

    ! The same as C's struct timeval.
    type, bind(c), public :: grpc_timeval_np
        integer(c_long) :: tv_sec = 0, tv_usec = 0
    end type

    ! As in grpc_ninfg.h, which describes which of these are known.
    type, bind(c), public :: grpc_exec_info_executable_t_np
        integer(c_int) :: callbackNtimesCalled = 0
        type(grpc_timeval_np) :: transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime
        type(grpc_timeval_np) :: transferFileToRemoteRealTime, transferFileToRemoteCpuTime
        type(grpc_timeval_np) :: calculationRealTime, calculationCpuTime
        type(grpc_timeval_np) :: transferResultToClientRealTime, transferResultToClientCpuTime
        type(grpc_timeval_np) :: transferFileToClientRealTime, transferFileToClientCpuTime
        type(grpc_timeval_np) :: callbackTransferArgumentToClientRealTime, callbackTransferArgumentToClientCpuTime
        type(grpc_timeval_np) :: callbackCalculationRealTime, callbackCalculationCpuTime
        type(grpc_timeval_np) :: callbackTransferResultToRemoteRealTime, callbackTransferResultToRemoteCpuTime
    end type

    type, bind(c), public :: grpc_exec_info_client_t_np
        integer(c_int) :: callbackNtimesCalled = 0
        type(grpc_timeval_np) :: remoteMachineInfoRequestRealTime, remoteMachineInfoRequestCpuTime
        type(grpc_timeval_np) :: remoteClassInfoRequestRealTime, remoteClassInfoRequestCpuTime
        type(grpc_timeval_np) :: gramInvokeRealTime, gramInvokeCpuTime
        type(grpc_timeval_np) :: transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime
        type(grpc_timeval_np) :: calculationRealTime, calculationCpuTime
        type(grpc_timeval_np) :: transferResultToClientRealTime, transferResultToClientCpuTime
        type(grpc_timeval_np) :: callbackTransferArgumentToClientRealTime, callbackTransferArgumentToClientCpuTime
        type(grpc_timeval_np) :: callbackCalculationRealTime, callbackCalculationCpuTime
        type(grpc_timeval_np) :: callbackTransferResultToRemoteRealTime, callbackTransferResultToRemoteCpuTime
    end type

    type, bind(c) :: compression_information
        integer(c_int) :: elements = 0
        type(c_ptr) :: to_remote = c_null_ptr, to_client = c_null_ptr
    end type

    type, bind(c), public :: grpc_session_info_t_np
        type(grpc_exec_info_executable_t_np) :: gei_measureExecutable
        type(grpc_exec_info_client_t_np) :: gei_measureClient
        type(compression_information), private :: gei_compressionInformation
    end type

    public :: grpc_config_file_read_np, grpc_seconds_np
    public :: grpc_function_handle_get_from_session_np, grpc_object_handle_get_from_session_np
    public :: grpc_function_handle_is_ready_np, grpc_object_handle_is_ready_np
    public :: grpc_function_handle_get_error_np, grpc_object_handle_get_error_np
    public :: grpc_function_handle_perror_np, grpc_object_handle_perror_np
    public :: grpc_session_info_get_np, grpc_get_info_np, grpc_get_last_info_np
    public :: grpc_session_info_set_threshold_np, grpc_signal_handler_set_np

    ! Functions of C that are used unchanged.
    interface
        integer(c_int) function grpc_function_handle_is_ready_np(handle) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
        end function
        integer(c_int) function grpc_function_handle_get_error_np(handle) bind(c)
            import
            type(grpc_function_handle_t), intent(in) :: handle
        end function
        integer(c_int) function grpc_object_handle_is_ready_np(handle) bind(c)
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
        end function
        integer(c_int) function grpc_object_handle_get_error_np(handle) bind(c)
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
        end function
        integer(c_int) function grpc_get_info_np(session_id, info, status) bind(c)
            import
            integer(c_int), value :: session_id
            type(grpc_session_info_t_np), intent(inout) :: info
            integer(c_int), intent(inout) :: status
        end function
        integer(c_int) function grpc_get_last_info_np(info, status) bind(c)
            import
            type(grpc_session_info_t_np), intent(inout) :: info
            integer(c_int), intent(inout) :: status
        end function
        integer(c_int) function grpc_session_info_set_threshold_np(count) bind(c)
            import
            integer(c_int), value :: count
        end function
        ! The handler is c_funloc of a subroutine with C's calling convention and the signal's number by value.
        integer(c_int) function grpc_signal_handler_set_np(signal_number, handler) bind(c)
            import
            integer(c_int), value :: signal_number
            type(c_funptr), value :: handler
        end function
    end interface

    ! Functions that get another form below.
    interface
        integer(c_int) function c_read(config_file_name) bind(c, name="grpc_config_file_read_np")
            import
            character(kind=c_char), intent(in) :: config_file_name(*)
        end function
        integer(c_int) function c_function_perror(handle, text) bind(c, name="grpc_function_handle_perror_np")
            import
            type(grpc_function_handle_t), intent(in) :: handle
            character(kind=c_char), intent(in) :: text(*)
        end function
        integer(c_int) function c_object_perror(handle, text) bind(c, name="grpc_object_handle_perror_np")
            import
            type(grpc_object_handle_t_np), intent(in) :: handle
            character(kind=c_char), intent(in) :: text(*)
        end function
    end interface

contains

    integer(c_int) function grpc_config_file_read_np(config_file_name)
        character(len=*), intent(in) :: config_file_name
        grpc_config_file_read_np = c_read(c_text(config_file_name))
    end function

    ! ---- Handles

    ! The same as grpc_get_handle.
    integer(c_int) function grpc_function_handle_get_from_session_np(handle, session_id)
        type(grpc_function_handle_t), pointer, intent(out) :: handle
        integer(c_int), intent(in) :: session_id
        grpc_function_handle_get_from_session_np = grpc_get_handle(handle, session_id)
    end function

    ! The same as grpc_get_object_handle_np.
    integer(c_int) function grpc_object_handle_get_from_session_np(handle, session_id)
        type(grpc_object_handle_t_np), pointer, intent(out) :: handle
        integer(c_int), intent(in) :: session_id
        grpc_object_handle_get_from_session_np = grpc_get_object_handle_np(handle, session_id)
    end function

    integer(c_int) function grpc_function_handle_perror_np(handle, text)
        type(grpc_function_handle_t), intent(in) :: handle
        character(len=*), intent(in) :: text
        grpc_function_handle_perror_np = c_function_perror(handle, c_text(text))
    end function

    integer(c_int) function grpc_object_handle_perror_np(handle, text)
        type(grpc_object_handle_t_np), intent(in) :: handle
        character(len=*), intent(in) :: text
        grpc_object_handle_perror_np = c_object_perror(handle, c_text(text))
    end function

    ! ---- Sessions

    ! Returns the record of a session, and one of GRPC_SESSION_*.
    integer(c_int) function grpc_session_info_get_np(session_id, info, status)
        integer(c_int), intent(in) :: session_id
        type(grpc_session_info_t_np), intent(inout) :: info
        integer(c_int), intent(inout) :: status
        grpc_session_info_get_np = grpc_get_info_np(session_id, info, status)
    end function

    ! Returns a time in seconds.
    pure real(c_double) function grpc_seconds_np(time)
        type(grpc_timeval_np), intent(in) :: time
        grpc_seconds_np = real(time%tv_sec, c_double) + 1d-6 * real(time%tv_usec, c_double)
    end function

end module grpc_sessions
