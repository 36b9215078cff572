! Data that stay where they are made: the part of grpc_remote.h that is written by hand. For the other modules: pointer_of.
!
!   type(grpc_remote_t) :: a
!   error = grpc_remote_new_np(a, "A")
!   error = grpc_call(first, n, x, a%value)      the result stays where it is made ...
!   error = grpc_call(second, n, a%value, y)     ... and is sent from there to where the second runs
!   error = grpc_remote_free_np(a)
!
! `a%value` is passed as the argument in calls and on argument stacks: it has no memory, and can only be passed on.
module grpc_remotes
    use, intrinsic :: iso_c_binding
    use grpc_c
    use grpc_texts
    implicit none
    private

    ! A handle. Copies are the same handle; one that was freed has no value.
    type, public :: grpc_remote_t
        integer(c_int8_t), pointer :: value => null()
    end type

    public :: grpc_remote_share_np, grpc_remote_free_np, pointer_of

contains

    ! Puts its value under a name that all programs of the grid find. If replaces is present and true, an existing
    ! name gets a new version; if durable is, its server has it again after a restart (gridloom serve --durable).
    integer(c_int) function grpc_remote_share_np(remote, name, replaces, durable)
        type(grpc_remote_t), intent(in) :: remote
        character(len=*), intent(in) :: name
        logical, intent(in), optional :: replaces, durable
        integer(c_int) :: flags
        flags = 0
        if (present(replaces)) flags = flags + merge(1_c_int, 0_c_int, replaces)
        if (present(durable)) flags = flags + merge(2_c_int, 0_c_int, durable)
        grpc_remote_share_np = c_remote_share_np(pointer_of(remote), c_text(name), flags)
    end function

    integer(c_int) function grpc_remote_free_np(remote)
        type(grpc_remote_t), intent(inout) :: remote
        grpc_remote_free_np = c_remote_free_np(pointer_of(remote))
        nullify(remote%value)
    end function

    type(c_ptr) function pointer_of(remote)
        type(grpc_remote_t), intent(in) :: remote
        pointer_of = c_null_ptr
        if (associated(remote%value)) pointer_of = c_loc(remote%value)
    end function

end module grpc_remotes
